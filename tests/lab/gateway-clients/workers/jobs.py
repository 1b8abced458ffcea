"""Jobs of Celery, RQ and huey: each adds its number to the file DONE. URL is the server's.

usage: jobs.py celery|rq|huey      enqueues the numbers that come on standard input, one a line
"""

import os
import sys
import time

import celery
import celery.exceptions
import huey
import redis
import rq

url, done = os.environ["URL"], os.environ["DONE"]
app = celery.Celery("jobs", broker=url, backend=url)
consumer = huey.RedisHuey("jobs", url=url)


def note(number):
    with open(done, "a") as file:
        file.write(f"{number}\n")


@app.task
def celery_note(number):
    note(number)


@consumer.task()
def huey_note(number):
    note(number)


def main():
    enqueue = {
        "celery": celery_note.delay,
        "rq": lambda number: rq.Queue(connection=redis.from_url(url)).enqueue(note, number),
        "huey": huey_note,
    }[sys.argv[1]]
    for line in sys.stdin:
        while True:
            try:
                enqueue(int(line))
                break
            # What an application expects when its server is away. Any other error ends this program.
            except (redis.ConnectionError, redis.TimeoutError, celery.exceptions.OperationalError) as error:
                print(f"again: {error!r}", file=sys.stderr, flush=True)
                time.sleep(0.2)


if __name__ == "__main__":
    # RQ and huey find the jobs by the name of their module.
    import jobs

    jobs.main()
