! SPDX-License-Identifier: Apache-2.0 OR MIT
! An MPI program in phases: all-to-alls, then all-reduces, and after each of them a
! message between every two ranks. Each rank prints its calls, for comparison with
! the output of `paceline status` for its process. phases.c is the same in C.
!
!     phases ALLTOALLS BYTES ALLREDUCES [FILE]
!
! An all-to-all and a message carry BYTES from rank to rank. With FILE the ranks wait
! before MPI_Finalize until it exists, so that their connections can be looked at.

program phases
  use, intrinsic :: iso_c_binding, only: c_int
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  use mpi_f08
  implicit none

  interface
    function process_id() bind(C, name='getpid')
      import c_int
      integer(c_int) :: process_id
    end function
    function usleep(microseconds) bind(C)
      import c_int
      integer(c_int), value :: microseconds
      integer(c_int) :: usleep
    end function
  end interface

  integer :: rank, ranks, alltoalls, bytes, allreduces, messages, i
  character, allocatable, asynchronous :: send(:,:), receive(:,:) ! BYTES for each rank

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  alltoalls = number(1, 0)
  bytes = number(2, 1)
  allreduces = number(3, 0)
  allocate (send(bytes, 0:ranks - 1), receive(bytes, 0:ranks - 1))
  send = achar(rank)

  messages = 0
  do i = 1, alltoalls
    call exchange_with_all()
    call messages_between_ranks()
  end do
  do i = 1, allreduces
    call sum_over_all()
    call messages_between_ranks()
  end do

  print '(6(a,i0),a)', 'rank ', rank, ' of ', ranks, ', process ', process_id(), ': ', alltoalls, &
    ' all-to-alls, ', allreduces, ' all-reduces, ', messages, ' messages'
  flush (output_unit)
  if (command_argument_count() > 3) call wait_for(argument(4))
  call MPI_Finalize()

contains

  function argument(place)
    integer, intent(in) :: place
    character(:), allocatable :: argument
    integer :: length

    call get_command_argument(place, length=length)
    allocate (character(length) :: argument)
    call get_command_argument(place, argument)
  end function

  integer function number(place, least)
    integer, intent(in) :: place, least
    character(:), allocatable :: text
    integer :: status

    number = least - 1
    text = argument(place)
    read (text, *, iostat=status) number
    if (status == 0 .and. number >= least) return
    write (error_unit, '(a)') 'usage: phases ALLTOALLS BYTES ALLREDUCES [FILE]'
    call MPI_Abort(MPI_COMM_WORLD, 2)
  end function

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what

    if (right) return
    write (error_unit, '(a,i0,2a)') 'rank ', rank, ': wrong data after ', what
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  ! Received blocks contain the sender's rank.
  logical function is_from(from)
    integer, intent(in) :: from

    is_from = receive(1, from) == achar(from) .and. receive(bytes, from) == achar(from)
  end function

  subroutine exchange_with_all()
    integer :: from

    call MPI_Alltoall(send, bytes, MPI_CHARACTER, receive, bytes, MPI_CHARACTER, MPI_COMM_WORLD)
    do from = 0, ranks - 1
      call check(is_from(from), 'an all-to-all')
    end do
  end subroutine

  subroutine sum_over_all()
    integer :: total

    call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(total == ranks*(ranks + 1)/2, 'an all-reduce')
  end subroutine

  ! One message to each other rank and one from it. They are synchronous, so that each
  ! has arrived before the next collective begins: it was sent in no phase.
  subroutine messages_between_ranks()
    type(MPI_Request) :: request
    integer :: step, to, from

    do step = 1, ranks - 1
      to = modulo(rank + step, ranks)
      from = modulo(rank - step, ranks)
      call MPI_Irecv(receive(:, from), bytes, MPI_CHARACTER, from, 0, MPI_COMM_WORLD, request)
      call MPI_Ssend(send(:, to), bytes, MPI_CHARACTER, to, 0, MPI_COMM_WORLD)
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      call check(is_from(from), 'a message')
      messages = messages + 1
    end do
  end subroutine

  ! MPI libraries move data in calls only: other ranks may still need this one.
  subroutine wait_for(file)
    character(*), intent(in) :: file
    logical :: there, flag
    integer :: ignored

    do
      inquire (file=file, exist=there)
      if (there) exit
      call MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, flag, MPI_STATUS_IGNORE)
      ignored = usleep(1000)
    end do
  end subroutine
end program
