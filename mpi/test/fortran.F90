! SPDX-License-Identifier: Apache-2.0 OR MIT
! Compiled three times, with -DINTERFACE_MPIF, _MPI or _F08: the entry points that
! each of Fortran's interfaces calls are seen, and their requests are followed.

#ifdef INTERFACE_F08
#define COMM_HANDLE type(MPI_Comm)
#define REQUEST_HANDLE type(MPI_Request)
#else
#define COMM_HANDLE integer
#define REQUEST_HANDLE integer
#endif

module counting
  use, intrinsic :: iso_c_binding
  implicit none

  type, bind(C) :: stub_counts
    integer(c_int) :: enters, leaves, begins, ends, news, frees, inside, last_class, errors
  end type

  interface
    subroutine stub_read(now) bind(C)
      import stub_counts
      type(stub_counts), intent(out) :: now
    end subroutine
    subroutine allreduce_in_c(comm) bind(C)
      import c_int
      integer(c_int), value :: comm
    end subroutine
  end interface

  type(stub_counts) :: before
  integer :: failures = 0

contains

  subroutine expect(what, enters, begins, ends, news, frees)
    character(*), intent(in) :: what
    integer, intent(in) :: enters, begins, ends, news, frees
    type(stub_counts) :: now

    call stub_read(now)
    if (now%enters - before%enters /= enters .or. now%leaves - before%leaves /= enters .or. &
        now%begins - before%begins /= begins .or. now%ends - before%ends /= ends .or. &
        now%news - before%news /= news .or. now%frees - before%frees /= frees) then
      print '(a,a,6(1x,i0),a,5(1x,i0))', what, ': got', now%enters - before%enters, &
        now%leaves - before%leaves, now%begins - before%begins, now%ends - before%ends, &
        now%news - before%news, now%frees - before%frees, ', expected', enters, begins, ends, &
        news, frees
      failures = failures + 1
    end if
    before = now
  end subroutine
end module

program fortran
  use counting
#ifdef INTERFACE_F08
  use mpi_f08
#endif
#ifdef INTERFACE_MPI
  use mpi
#endif
  implicit none
#ifdef INTERFACE_MPIF
  include 'mpif.h'
#endif
  integer, parameter :: messages = 4
  COMM_HANDLE :: comm
  REQUEST_HANDLE :: requests(messages)
  logical, parameter :: is_collective(messages) = [.false., .true., .false., .true.]
  integer :: rank, ranks, ierror, way, i, completed, position, gone
  integer :: send(8), recv(8), message(2), ones(8), places(8), positions(messages)
  logical :: complete, persistent = .false.
  type(stub_counts) :: now

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
  ones = 1
  places = [(i, i = 0, 7)]
  send = rank
  call stub_read(before)

  ! Blocking, with classes made at the first of each kind
  call MPI_Bcast(recv, 1, MPI_INTEGER, 0, comm, ierror)
  call expect('MPI_Bcast', 1, 0, 0, 1, 0)
  call MPI_Alltoall(send, 1, MPI_INTEGER, recv, 1, MPI_INTEGER, comm, ierror)
  call expect('MPI_Alltoall', 1, 0, 0, 1, 0)
  if (any(recv(1:ranks) /= places(1:ranks))) failures = failures + 1
  recv = -1
  call MPI_Alltoallv(send, ones, places, MPI_INTEGER, recv, ones, places, MPI_INTEGER, comm, &
                     ierror)
  call expect('MPI_Alltoallv', 1, 0, 0, 0, 0)
  if (any(recv(1:ranks) /= places(1:ranks))) failures = failures + 1
  call MPI_Alltoallw(send, ones, 4 * places, [(MPI_INTEGER, i = 1, 8)], recv, ones, &
                     4 * places, [(MPI_INTEGER, i = 1, 8)], comm, ierror)
  call expect('MPI_Alltoallw', 1, 0, 0, 0, 0)
  call MPI_Gather(send, 1, MPI_INTEGER, recv, 1, MPI_INTEGER, 0, comm, ierror)
  call expect('MPI_Gather', 1, 0, 0, 1, 0)
  call MPI_Reduce(send, recv, 1, MPI_INTEGER, MPI_SUM, 0, comm, ierror)
  call expect('MPI_Reduce', 1, 0, 0, 0, 0)
  call MPI_Allreduce(send, recv, 1, MPI_INTEGER, MPI_SUM, comm, ierror)
  call expect('MPI_Allreduce', 1, 0, 0, 1, 0)
  if (recv(1) /= ranks * (ranks - 1) / 2) failures = failures + 1
#ifdef INTERFACE_F08
  call MPI_Allreduce(send, recv, 1, MPI_INTEGER, MPI_SUM, comm)
  call expect('MPI_Allreduce without ierror', 1, 0, 0, 0, 0)
  call allreduce_in_c(comm%MPI_VAL)
#else
  call allreduce_in_c(comm)
#endif
  call expect('MPI_Allreduce in C is in the same class', 1, 0, 0, 0, 0)
  call MPI_Barrier(comm, ierror)
  call expect('MPI_Barrier', 0, 0, 0, 0, 0)

  ! Nonblocking: null, collective, message and collective, completed in each way
  do way = 1, 8
    requests(1) = MPI_REQUEST_NULL
    call MPI_Iallreduce(send, recv, 1, MPI_INTEGER, MPI_SUM, comm, requests(2), ierror)
    call MPI_Irecv(message(1), 1, MPI_INTEGER, mod(rank + 1, ranks), 0, comm, requests(3), ierror)
    call MPI_Ialltoall(send, 1, MPI_INTEGER, recv(5:), 1, MPI_INTEGER, comm, requests(4), ierror)
    call MPI_Send(rank, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 0, comm, ierror)
    call expect('nonblocking', 0, 2, 0, 0, 0)
    call complete_all()
  end do

  ! Persistent: two rounds of the same requests, which stay known
  call make_persistent()
  persistent = .true.
  do way = 1, 8
#ifndef OPEN_MPI_EXTENSION
    ! As in completions.c: MPICH 4.0 can wait for, wait for all, and test one of them
    if (all(way /= [1, 2, 5])) cycle
#endif
    call MPI_Start(requests(2), ierror)
    call expect('MPI_Start', 0, 1, 0, 0, 0)
    call MPI_Startall(2, requests(3:4), ierror)
    call expect('MPI_Startall', 0, 1, 0, 0, 0)
    call MPI_Send(rank, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 0, comm, ierror)
    call complete_all()
  end do
  do i = 2, messages
    call MPI_Request_free(requests(i), ierror)
  end do
  call expect('MPI_Request_free', 0, 0, 0, 0, 0)

  call MPI_Comm_free(comm, ierror)
  call expect('MPI_Comm_free', 0, 0, 0, 0, 4)
  call MPI_Finalize(ierror)

  call stub_read(now)
  if (now%errors /= 0 .or. now%inside /= 0) failures = failures + 1
  if (failures /= 0) stop 1

contains

  subroutine expect_ends(what, ends)
    character(*), intent(in) :: what
    integer, intent(in) :: ends

    call expect(what, 0, 0, ends, 0, 0)
  end subroutine

  integer function collectives_gone()
    integer :: k

    collectives_gone = 0
    do k = 1, messages
      if (is_collective(k) .and. requests(k) == MPI_REQUEST_NULL) &
        collectives_gone = collectives_gone + 1
    end do
  end function

  ! MPICH 4.0 has the positions from 0 in mpi_f08, and MPI_UNDEFINED + 1 for none in
  ! mpif.h. So they are used only if there is no other evidence.
  subroutine expect_listed(what, listed)
    character(*), intent(in) :: what
    integer, intent(in) :: listed(:)

    if (persistent) then
      call expect_ends(what, count(is_collective(listed)))
    else
      call expect_ends(what, collectives_gone() - gone)
      gone = collectives_gone()
    end if
  end subroutine

  subroutine complete_all()
    gone = 0
    select case (way)
    case (1)
      do i = messages, 1, -1
        call MPI_Wait(requests(i), MPI_STATUS_IGNORE, ierror)
        call expect_ends('MPI_Wait', merge(1, 0, is_collective(i)))
      end do
    case (2)
      call MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE, ierror)
      call expect_ends('MPI_Waitall', 2)
    case (3)
      do
        call MPI_Waitany(messages, requests, position, MPI_STATUS_IGNORE, ierror)
        if (position < 0) exit
        call expect_listed('MPI_Waitany', [position])
      end do
    case (4)
      do
        call MPI_Waitsome(messages, requests, completed, positions, MPI_STATUSES_IGNORE, ierror)
        if (completed < 0) exit
        call expect_listed('MPI_Waitsome', positions(1:completed))
      end do
    case (5)
      do i = 1, messages
        complete = .false.
        do while (.not. complete)
          call MPI_Test(requests(i), complete, MPI_STATUS_IGNORE, ierror)
          call expect_ends('MPI_Test', merge(1, 0, complete .and. is_collective(i)))
        end do
      end do
    case (6)
      complete = .false.
      do while (.not. complete)
        call MPI_Testall(messages, requests, complete, MPI_STATUSES_IGNORE, ierror)
        call expect_ends('MPI_Testall', merge(2, 0, complete))
      end do
    case (7)
      do
        call MPI_Testany(messages, requests, position, complete, MPI_STATUS_IGNORE, ierror)
        if (complete .and. position < 0) exit
        if (complete) then
          call expect_listed('MPI_Testany', [position])
        else
          call expect_ends('MPI_Testany of none', 0)
        end if
      end do
    case (8)
      do
        call MPI_Testsome(messages, requests, completed, positions, MPI_STATUSES_IGNORE, ierror)
        if (completed < 0) exit
        call expect_listed('MPI_Testsome', positions(1:completed))
      end do
    end select
    call expect_ends('all complete', 0)
  end subroutine

  subroutine make_persistent()
#ifdef OPEN_MPI_EXTENSION
#define ALLREDUCE_INIT MPIX_Allreduce_init
#define ALLTOALL_INIT MPIX_Alltoall_init
#ifdef INTERFACE_F08
    use mpi_f08_ext
#elif defined(INTERFACE_MPI)
    use mpi_ext
#else
    include 'mpif-ext.h'
#endif
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#define ALLTOALL_INIT MPI_Alltoall_init
#endif
    requests(1) = MPI_REQUEST_NULL
    call ALLREDUCE_INIT(send, recv, 1, MPI_INTEGER, MPI_SUM, comm, MPI_INFO_NULL, requests(2), &
                        ierror)
    call MPI_Recv_init(message(1), 1, MPI_INTEGER, mod(rank + 1, ranks), 0, comm, requests(3), &
                       ierror)
    call ALLTOALL_INIT(send, 1, MPI_INTEGER, recv(5:), 1, MPI_INTEGER, comm, MPI_INFO_NULL, &
                       requests(4), ierror)
    call expect('persistent requests', 0, 0, 0, 0, 0)
  end subroutine
end program
