"""Values that are kept until something is written to the database."""

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from django.db import connection, transaction

from sessions_app.database.sqlite import UntilWritten, database_path
from sessions_app.models import Root


@pytest.fixture
def count(redline):
    """How many roots there are, as a value that is kept, with the number of times it was computed."""

    def compute():
        count.computed += 1
        return Root.objects.count()

    count = UntilWritten(compute)
    count.computed = 0
    return count


def test_a_value_is_computed_again_only_after_a_write_of_this_or_another_process(count):
    assert [count(), count(), count.computed] == [0, 0, 1]
    Root.objects.create(path="/one")
    assert [count(), count(), count.computed] == [1, 1, 2]
    with closing(sqlite3.connect(database_path())) as other:
        other.execute("DELETE FROM sessions_app_root")
        other.commit()
    assert [count(), count.computed] == [0, 3]


def test_what_a_transaction_has_written_is_kept_for_nobody(count):
    with transaction.atomic():
        Root.objects.create(path="/one")
        assert count() == 1
        transaction.set_rollback(True)
    assert count() == 0


def test_a_fork_waits_for_what_other_threads_ask(count):
    over = threading.Event()

    def ask() -> int:
        asked = 0
        while not over.is_set():
            asked += count() == 0
        connection.close()
        return asked

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(ask) for _ in range(3)]
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        over.set()
        assert all(thread.result() for thread in threads)
