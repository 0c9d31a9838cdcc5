"""One query on one worker: the core decides, and this carries out what it asks for."""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import duckdb
import pyarrow as pa

from headway.base.errors import HeadwayError
from headway.lineage.names import TaskId
from headway.lineage.topology import Protection
from headway.pipelined.core.effects import (
    Answer,
    Arrived,
    Close,
    Delete,
    Deliver,
    Delivered,
    Discard,
    Drop,
    Effect,
    Execute,
    Executed,
    ExecutionFailed,
    Keep,
    Kept,
    Open,
    Reception,
    Resend,
    Resent,
    Say,
    Stop,
)
from headway.pipelined.core.messages import Destination, Input, Message, Run
from headway.pipelined.core.worker import WorkerCore
from headway.pipelined.transport import Extract, Extracted, StartQuery
from headway.pipelined.worker.backups import Backups, Pieces
from headway.pipelined.worker.channels import Channels
from headway.pipelined.worker.inbox import Inbox
from headway.pipelined.worker.interfaces import QueryKernels, TaskOutput
from headway.pipelined.worker.sending import Sender, Surroundings
from headway.pipelined.worker.slices import position, sizes

_SAMPLE_ROWS = 1000


class QueryWork:
    """Safe from several threads. The steps of a task are a method each; they run in the worker's
    threads and may take their time."""

    def __init__(
        self,
        start: StartQuery,
        kernels: QueryKernels,
        around: Surroundings,
        folder: Path,
        inbox_limit: int,
        backup_limit: int,
    ) -> None:
        self.query = start.query
        self._topology = start.topology
        self._around = around
        self._folder = folder
        self._core = WorkerCore(around.worker, start.topology)
        self._lock = threading.RLock()  # of the core, and of what must keep step with it
        self._events: deque[Message | Answer] = deque()
        self._turn = threading.Lock()  # of the thread that tells the core
        self._ended = False
        self._kernels = kernels
        self._channels = Channels(kernels)
        self._inbox = Inbox(folder / "inbox", inbox_limit, around.leave)
        self._backups = Backups(folder / "backups", backup_limit)
        self._pieces = Pieces(start.store_url, start.run_id, start.query)
        self._outputs: dict[tuple[TaskId, int], TaskOutput] = {}
        self._sender = Sender(start.query, around, self._inbox, self.arrive)

    def post(self, event: Message | Answer) -> None:
        """Tell the core, after all that it was told before, and begin what it asks for. Done by
        whichever thread comes first: a change of threads costs more than most events."""
        self._events.append(event)
        while self._events and self._turn.acquire(blocking=False):
            try:
                while self._events:
                    self._handle(self._events.popleft())
            except Exception:  # noqa: BLE001  (our own bug: a worker that has one must not go on)
                self._around.leave(f"a bug: {traceback.format_exc()}")
            finally:
                self._turn.release()

    def _handle(self, event: Message | Answer) -> None:
        with self._lock:
            if self._ended:
                return
            # Slices are discarded before others arrive in their place, as from a delivery here.
            for effect in sorted(self._core.handle(event), key=_is_no_discard):
                self._begin(effect)

    def room(self, wanted: int, still_waiting: Callable[[], None]) -> AbstractContextManager[None]:
        return self._inbox.room(wanted, still_waiting)

    def arrive(self, arrived: Arrived, table: pa.Table) -> bool:
        """A slice for a channel of this worker; whether it was accepted."""
        with self._lock:
            reception = Reception.REFUSE if self._ended else self._core.receive(arrived)
            if reception is Reception.TAKE:
                # Before the core hears of it, which may ask for it at once.
                self._inbox.put(arrived.channel, arrived.side, arrived.output, table)
        if reception is Reception.TAKE:
            self.post(arrived)
        return reception is not Reception.REFUSE

    def end(self) -> None:
        """Drop all of it. Tasks that run are stopped, and waited for."""
        with self._lock:
            self._ended = True
            self._outputs.clear()
        self._kernels.interrupt()
        self._inbox.close()
        self._channels.close_all()
        self._kernels.close()
        self._backups.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # The steps.

    def execute(self, run: Run) -> Executed:
        channel, side = run.task.of, run.lineage.side
        if self._channels.is_open(channel, run.epoch):
            inputs = [self._inbox.get(channel, side, each.output) for each in run.inputs]
            output = self._channels.execute(channel, run.epoch, run.lineage, inputs)
        else:
            output = self._channels.execute_alone(channel, run.lineage)
        with self._lock:
            if not self._ended:
                self._outputs[run.task, run.epoch] = output
        return Executed(run.task, run.epoch, sizes(output.slices), output.rows, output.more)

    def keep(self, output: TaskId, epoch: int, made: TaskOutput) -> Kept:
        stage = self._topology.stages[output.stage]
        if stage.result:
            return Kept(output, epoch, self._pieces.write_result(output, epoch, made.table))
        if stage.protection is Protection.SPOOL:
            return Kept(output, epoch, self._pieces.write_slices(output, epoch, made.slices))
        self._backups.keep(output, epoch, made.slices)
        return Kept(output, epoch)

    def deliver(
        self, output: TaskId, epoch: int, made: TaskOutput, destinations: tuple[Destination, ...]
    ) -> Delivered:
        def find(destination: Destination) -> pa.Table:
            consumer, reader = position(self._topology, output, destination)
            return made.slices[consumer][reader]

        return Delivered(output, epoch, self._sender.send(output, epoch, destinations, find))

    def resend(
        self, output: TaskId, epoch: int, destinations: tuple[Destination, ...], piece: str | None
    ) -> Resent:
        opened = (
            self._backups.open(output, epoch)
            if piece is None
            else (self._pieces.open(piece), epoch)
        )
        if opened is None:
            return Resent(output, epoch, (), readable=False)
        file, made_under = opened
        found: dict[tuple[int, int], pa.Table] = {}

        def find(destination: Destination) -> pa.Table:
            place = position(self._topology, output, destination)
            if place not in found:
                found[place] = file.read(*place)
            return found[place]

        delivered = self._sender.send(output, made_under, destinations, find)
        return Resent(output, epoch, delivered, readable=True)

    def delete(self, outputs: tuple[Input, ...]) -> None:
        self._backups.delete(outputs)

    def extract(self, asked: Extract) -> Extracted:
        """State of a channel, into a piece. A task of the channel that runs is waited for."""
        try:
            if asked.only_sizes:
                return self._sizes(asked)
            table = self._channels.read(asked.channel, asked.sql, asked.columns)
        except (duckdb.Error, HeadwayError, pa.ArrowException) as error:
            return Extracted(asked.piece, problem=str(error))
        if table is None:
            return _not_here(asked)
        began = time.monotonic()
        try:
            self._pieces.write_state(asked.piece, table)
        except (HeadwayError, OSError, pa.ArrowException) as error:
            return Extracted(asked.piece, problem=str(error), not_written=True)
        took = time.monotonic() - began
        return Extracted(asked.piece, table.num_rows, table.nbytes, took)

    def _sizes(self, asked: Extract) -> Extracted:
        """The bytes are those of some rows, times all rows."""
        count = f"SELECT count(*) FROM ({asked.sql})"
        counted = self._channels.read(asked.channel, count, (("n", "bigint"),))
        some = f"SELECT * FROM ({asked.sql}) LIMIT {_SAMPLE_ROWS}"
        sample = self._channels.read(asked.channel, some, asked.columns)
        if counted is None or sample is None:
            return _not_here(asked)
        rows = int(counted.column(0)[0].as_py())
        return Extracted(asked.piece, rows, rows * sample.nbytes // max(1, sample.num_rows))

    def say(self, message: Message) -> None:
        self._around.report(self.query, message)

    # How they are begun.

    def _begin(self, effect: Effect) -> None:
        around = self._around
        match effect:
            case Execute(run):
                # What others wait for after a loss is not put behind all that there is to do.
                threads = around.repeating if run.repeated else around.computing
                threads.submit(lambda: self._execute(run))
            # The output is looked up now: it may be dropped before these are done with it.
            case Keep(output, epoch):
                self._begin_keeping(output, epoch, self._outputs[output, epoch])
            case Deliver(output, epoch, destinations):
                self._deliver(output, epoch, self._outputs[output, epoch], destinations)
            case Resend(output, epoch, destinations, piece):
                around.moving.submit(lambda: self._resend(output, epoch, destinations, piece))
            case Open(channel, epoch):
                self._channels.open(channel, epoch)
            case Close(channel, epoch):
                around.moving.submit(self._channels.close(channel, epoch))
            case Drop(output, epoch):
                self._outputs.pop((output, epoch), None)
            case Discard(channel, side, inputs):
                self._inbox.discard(channel, side, [each.output for each in inputs])
            case Delete(outputs):
                around.moving.submit(lambda: self.delete(outputs))
            case Say(message):
                self.say(message)
            case Stop(reason):
                around.leave(reason)

    def _execute(self, run: Run) -> None:
        if self._ended:
            return
        answer: Executed | ExecutionFailed
        try:
            answer = self.execute(run)
        except HeadwayError as error:
            answer = ExecutionFailed(run.task, run.epoch, error.name, error.message, error.hint)
        except duckdb.Error as error:
            answer = ExecutionFailed(run.task, run.epoch, "QUERY_FAILED", str(error))
        except OSError as error:  # an input that was spilled cannot be read back
            return self._around.leave(f"the inputs of {run.task} cannot be read: {error}")
        except Exception:  # noqa: BLE001  (our own bug: it ends the query and tells its story)
            story = traceback.format_exc()
            answer = ExecutionFailed(run.task, run.epoch, "INTERNAL_ERROR", story)
        self.post(answer)

    def _begin_keeping(self, output: TaskId, epoch: int, made: TaskOutput) -> None:
        stage = self._topology.stages[output.stage]
        as_backup = not stage.result and stage.protection is Protection.BACKUP
        if as_backup and self._backups.fits(made.slices):
            self._keep(output, epoch, made)  # nothing to wait for: not worth a change of threads
        else:
            self._around.moving.submit(lambda: self._keep(output, epoch, made))

    def _keep(self, output: TaskId, epoch: int, made: TaskOutput) -> None:
        try:
            answer = self.keep(output, epoch, made)
        except (OSError, HeadwayError) as error:
            answer = Kept(output, epoch, problem=str(error))
        self.post(answer)

    def _deliver(
        self, output: TaskId, epoch: int, made: TaskOutput, destinations: tuple[Destination, ...]
    ) -> None:
        def work() -> None:
            self.post(self.deliver(output, epoch, made, destinations))

        worker = self._around.worker
        if all(each.worker == worker for each in destinations) and self._inbox.has_room():
            work()
        else:
            self._around.moving.submit(work)

    def _resend(
        self, output: TaskId, epoch: int, destinations: tuple[Destination, ...], piece: str | None
    ) -> None:
        try:
            self.post(self.resend(output, epoch, destinations, piece))
        except (OSError, HeadwayError, pa.ArrowException):
            self.post(Resent(output, epoch, (), readable=False))


def _not_here(asked: Extract) -> Extracted:
    return Extracted(asked.piece, problem="the channel is not here")


def _is_no_discard(effect: Effect) -> bool:
    return not isinstance(effect, Discard)
