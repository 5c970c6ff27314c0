// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A plugin of Slurm (SPANK): srun, sbatch and salloc get the option --paceline=POLICY.
 *
 * On each node, before a task of the step runs its program, the step's cgroup comes under the
 * policy, by the Paceline agent of that node (method attach-step; the protocol's schema is
 * docs/schemas/agent-protocol.json). All tasks of the step on the node are one job. Whatever
 * goes wrong is reported once per node, and the task runs without the policy: a plugin that is
 * `optional` in plugstack.conf must not keep jobs from running.
 *
 * plugstack.conf:
 *     optional paceline_spank.so [agent=/run/paceline] [policy=NAME] [patience=SECONDS]
 * policy: of steps that do not ask for one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <json-c/json.h>
#include <slurm/spank.h>

SPANK_PLUGIN(paceline, 1)

/* Version of the protocol that this plugin speaks. */
#define PROTOCOL 1
/* Bytes of an answer at most. */
#define LONGEST_ANSWER 65536
/* Bytes of a policy's name at most: a path. */
#define LONGEST_POLICY 4096
/* Seconds that the agent may take, unless the administrator sets another time: loading its
 * programs on a busy host takes some. */
#define PATIENCE_S 10
/* Instead of a policy: none, also where the administrator has set one. */
#define NONE "none"

static char policy[LONGEST_POLICY];
static char directory[sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/jobs.sock")] = "/run/paceline";
static int patience_s = PATIENCE_S;
/* Of this step on this node. */
static int warned;	    /* the user knows that it runs without the policy */
static uint64_t job;	    /* of the agent; 0: none */
static uint32_t tasks_left; /* that have not ended */

static int chosen(int value, const char *argument, int remote)
{
	(void)value;
	(void)remote;
	if (!argument || !*argument || strlen(argument) >= sizeof(policy)) {
		slurm_error("--paceline: expected the name of a policy, such as --paceline=lfn, or --paceline=" NONE);
		return -1;
	}
	strcpy(policy, argument);
	return 0;
}

static struct spank_option option = {
	"paceline",
	"POLICY",
	"Adapt the TCP of the job by this policy of Paceline; " NONE ": not at all",
	1,
	0,
	chosen,
};

static int configure(int count, char **arguments)
{
	for (int at = 0; at < count; at++) {
		const char *argument = arguments[at];
		char *end;
		long seconds;

		if (!strncmp(argument, "agent=/", 7) && strlen(argument + 6) < sizeof(directory)) {
			strcpy(directory, argument + 6);
		} else if (!strncmp(argument, "policy=", 7) && argument[7] && strlen(argument + 7) < sizeof(policy)) {
			if (!*policy)
				strcpy(policy, argument + 7);
		} else if (!strncmp(argument, "patience=", 9)
			   && (seconds = strtol(argument + 9, &end, 10)) > 0 && seconds <= 600 && !*end) {
			patience_s = (int)seconds;
		} else {
			slurm_error("paceline: plugstack.conf: %s: expected agent=/DIRECTORY, policy=NAME or patience=SECONDS (1 to 600)", argument);
			return -1;
		}
	}
	return 0;
}

static int is_asked(void)
{
	return *policy && strcmp(policy, NONE) != 0;
}

/* Warns the user once. */
static void run_without(const char *code, const char *why)
{
	if (!warned)
		slurm_spank_log("paceline: the job runs without the policy %s here: %s%s%s", policy,
				why, *code ? " " : "", code);
	warned = 1;
}

static int call(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = patience_s };
	int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (stream < 0)
		return -1;
	strcpy(address.sun_path, path);
	if (setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0
	    && setsockopt(stream, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0
	    && connect(stream, (struct sockaddr *)&address, sizeof(address)) == 0)
		return stream;
	int error = errno;
	close(stream);
	errno = error;
	return -1;
}

static int send_all(int stream, const char *bytes, size_t length)
{
	while (length) {
		ssize_t sent = send(stream, bytes, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return -1;
		bytes += sent;
		length -= (size_t)sent;
	}
	return 0;
}

/* One line, without its end; NULL: none came. */
static char *receive_line(int stream)
{
	char *answer = malloc(LONGEST_ANSWER);
	size_t length = 0;

	while (answer && length < LONGEST_ANSWER) {
		ssize_t got = recv(stream, answer + length, LONGEST_ANSWER - length, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			if (got == 0)
				errno = ECONNRESET;
			break;
		}
		char *end = memchr(answer + length, '\n', (size_t)got);
		if (end) {
			*end = 0;
			return answer;
		}
		length += (size_t)got;
	}
	if (length == LONGEST_ANSWER)
		errno = EMSGSIZE;
	int error = errno;
	free(answer);
	errno = error;
	return NULL;
}

/* The agent's answer to a request, which is used up; NULL: there is none, and the user was warned. */
static struct json_object *ask(struct json_object *request)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char why[512];
	struct json_object *answer = NULL;
	char *line = NULL;

	snprintf(path, sizeof(path), "%s/jobs.sock", directory);
	const char *text = json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN);
	int stream = call(path);
	if (stream < 0) {
		snprintf(why, sizeof(why), "no agent answers at %s (%s)", path, strerror(errno));
	} else if ((send_all(stream, text, strlen(text)) < 0 || send_all(stream, "\n", 1) < 0) && errno != EPIPE) {
		snprintf(why, sizeof(why), "cannot ask the agent at %s (%s)", path, strerror(errno));
	} else if (!(line = receive_line(stream))) {
		/* Nothing within the patience is EAGAIN. */
		const char *error = errno == EAGAIN ? "no answer in time" : strerror(errno);
		snprintf(why, sizeof(why), "the agent at %s did not answer (%s)", path, error);
	} else if (!(answer = json_tokener_parse(line)) || !json_object_is_type(answer, json_type_object)) {
		snprintf(why, sizeof(why), "what answers at %s is no agent", path);
		json_object_put(answer);
		answer = NULL;
	}
	if (!answer)
		run_without("", why);
	free(line);
	if (stream >= 0)
		close(stream);
	json_object_put(request);
	return answer;
}

static struct json_object *request_of(const char *method)
{
	struct json_object *request = json_object_new_object();

	json_object_object_add(request, "protocol", json_object_new_int(PROTOCOL));
	json_object_object_add(request, "method", json_object_new_string(method));
	return request;
}

/* A text in an answer, or an empty one. */
static const char *text_in(struct json_object *object, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_string))
		return "";
	return json_object_get_string(value);
}

static struct json_object *groups_of(spank_t spank)
{
	struct json_object *groups = json_object_new_array();
	gid_t own, *others;
	int count;

	if (spank_get_item(spank, S_JOB_GID, &own) == ESPANK_SUCCESS)
		json_object_array_add(groups, json_object_new_int64(own));
	if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &others, &count) == ESPANK_SUCCESS)
		for (int at = 0; at < count; at++)
			json_object_array_add(groups, json_object_new_int64(others[at]));
	return groups;
}

/* In each context, or the option is unknown in one of them. */
int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	spank_context_t context = spank_context();

	if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR)
		return 0;
	if (configure(count, arguments) < 0)
		return -1;
	return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

/* In the task, as its user: where programs and libraries ask for pages of phases. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	char pages[sizeof(directory) + sizeof("/agent.sock")];

	(void)count;
	(void)arguments;
	if (!is_asked())
		return 0;
	snprintf(pages, sizeof(pages), "%s/agent.sock", directory);
	spank_setenv(spank, "PACELINE_SOCKET", pages, 1);
	return 0;
}

/* In slurmstepd, as root; the task is in the step's cgroup and waits. */
int slurm_spank_task_post_fork(spank_t spank, int count, char **arguments)
{
	struct json_object *request, *answer, *attached, *refused, *number;
	pid_t process;
	uid_t owner;

	(void)count;
	(void)arguments;
	if (!is_asked())
		return 0;
	tasks_left++;
	/* If one task has no policy, none has: a step that has waited for the agent does not
	 * wait once more for each task. */
	if (warned)
		return 0;
	if (spank_get_item(spank, S_TASK_PID, &process) != ESPANK_SUCCESS
	    || spank_get_item(spank, S_JOB_UID, &owner) != ESPANK_SUCCESS) {
		run_without("", "Slurm does not tell the task's process");
		return 0;
	}
	request = request_of("attach-step");
	json_object_object_add(request, "process", json_object_new_int64(process));
	json_object_object_add(request, "policy", json_object_new_string(policy));
	json_object_object_add(request, "owner", json_object_new_int64(owner));
	json_object_object_add(request, "groups", groups_of(spank));
	answer = ask(request);
	if (!answer)
		return 0;
	if (json_object_object_get_ex(answer, "attached", &attached)
	    && json_object_object_get_ex(attached, "job", &number)) {
		job = json_object_get_uint64(number);
	} else if (json_object_object_get_ex(answer, "refused", &refused)) {
		char code[64];

		snprintf(code, sizeof(code), "(%s)", text_in(refused, "code"));
		run_without(code, text_in(refused, "message"));
	} else {
		run_without("", "the agent's answer is not one of this version");
	}
	json_object_put(answer);
	return 0;
}

/* In slurmstepd, while the user still sees messages: after the last task of this node. The first
 * node of a step reports for all. */
int slurm_spank_task_exit(spank_t spank, int count, char **arguments)
{
	struct json_object *request, *answer, *reported;
	uint32_t node = 0;

	(void)count;
	(void)arguments;
	if (!tasks_left || --tasks_left || !job)
		return 0;
	spank_get_item(spank, S_JOB_NODEID, &node);
	if (node != 0)
		return 0;
	request = request_of("report");
	json_object_object_add(request, "job", json_object_new_uint64(job));
	warned = 1; /* No warning: the job had its policy, even if the report fails. */
	answer = ask(request);
	if (answer && json_object_object_get_ex(answer, "reported", &reported))
		slurm_spank_log("paceline: %s %s%s%s", text_in(reported, "text"), policy,
				*text_in(reported, "traffic") ? ": " : "", text_in(reported, "traffic"));
	json_object_put(answer);
	return 0;
}
