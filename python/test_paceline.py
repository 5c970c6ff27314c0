# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tests of the module, with the library that PACELINE_LIBRARY names, and without.

That a class reaches the kernel side is tested in tests/jobs/phases.rs.
"""

import os
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import paceline  # noqa: E402


class Phases(unittest.TestCase):
    def test_the_library_is_the_one_that_was_asked_for(self):
        asked_for = os.environ.get("PACELINE_LIBRARY")
        if asked_for is not None:
            self.assertEqual(paceline._library is not None, asked_for != "")
        # These tests do not run under Paceline.
        self.assertIs(paceline.active(), False)

    def test_phases_in_vain_are_told_once_and_only_in_a_job(self):
        program = "import paceline\nfor _ in range(3):\n with paceline.phase(1): pass\npaceline.class_new()"
        here = os.path.dirname(os.path.abspath(__file__))
        for job, library, times in (
            ("/nonexistent/pages", os.environ.get("PACELINE_LIBRARY") or "/nonexistent.so", 1),
            ("/nonexistent/pages", "/nonexistent.so", 1),
            ("/nonexistent/pages", "", 0),
            ("", "/nonexistent.so", 0),
        ):
            environment = dict(os.environ, PYTHONPATH=here, PACELINE_LIBRARY=library, PACELINE_SOCKET=job)
            done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("phases switch nothing"), times, (job, library, done.stderr))

    def test_enters_nest_and_a_leave_too_many_raises(self):
        for _ in range(3):
            paceline.enter(1)
            paceline.enter(paceline.CLASSES - 1)
            paceline.leave()
            paceline.leave()
            with self.assertRaisesRegex(RuntimeError, "unbalanced leave"):
                paceline.leave()

    def test_a_class_out_of_range_is_not_entered(self):
        for wrong in (-1, paceline.CLASSES, 2**32, 2**32 + 1):
            for function in (paceline.enter, paceline.begin, paceline.class_free):
                with self.assertRaisesRegex(ValueError, "0 to 63"):
                    function(wrong)
        with self.assertRaises(TypeError):
            paceline.enter("1")
        with self.assertRaises(RuntimeError):
            paceline.leave()

    def test_phase_leaves_whatever_happens(self):
        with self.assertRaises(KeyError):
            with paceline.phase(3):
                raise KeyError
        with paceline.phase(3), paceline.phase(4):
            pass

        @paceline.phase(5)
        def function():
            return 7

        self.assertEqual((function(), function()), (7, 7))
        with self.assertRaises(RuntimeError):
            paceline.leave()

    def test_operations_end_once_in_any_order_and_thread(self):
        first, second = paceline.begin(1), paceline.begin(2)
        self.assertNotEqual(first, second)
        thread = threading.Thread(target=paceline.end, args=(first,))
        thread.start()
        thread.join()
        for ended in (first, None, -1):
            with self.assertRaisesRegex(RuntimeError, "unbalanced end"):
                paceline.end(ended)
        paceline.end(second)

    def test_each_thread_leaves_its_own(self):
        raised = []

        def run():
            try:
                paceline.leave()
            except RuntimeError as error:
                raised.append(error)

        with paceline.phase(1):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        self.assertEqual(len(raised), 1)

    def test_classes_are_given_out_once(self):
        given = [paceline.class_new() for _ in range(paceline.CLASSES - 1)]
        self.assertEqual(given, list(range(paceline.CLASSES - 1, 0, -1)))
        with self.assertRaisesRegex(RuntimeError, "no class is free"):
            paceline.class_new()
        paceline.class_free(9)
        self.assertEqual(paceline.class_new(), 9)
        for number in given:
            paceline.class_free(number)
        for number in (0, 9):
            with self.assertRaisesRegex(ValueError, "not given out"):
                paceline.class_free(number)

    def test_a_forked_child_has_entered_nothing(self):
        token = paceline.begin(2)
        with paceline.phase(1):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for function in (paceline.leave, lambda: paceline.end(token)):
                        with self.assertRaises(RuntimeError):
                            function()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        paceline.end(token)

    def test_a_child_that_leaves_the_body_is_not_blamed(self):
        program = (
            "import os, paceline\n"
            "with paceline.phase(1):\n"
            "    child = os.fork()\n"
            "if child:\n"
            "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        path = os.path.dirname(os.path.abspath(__file__))
        environment = dict(os.environ, PYTHONPATH=path)
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)


if __name__ == "__main__":
    unittest.main()
