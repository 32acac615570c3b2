"""Sales whose commit is durable and whose answer is lost, behind PgBouncer.

    lost_commits.py PROGRAM POSTGRES_URL FOLDER

The server's connection is ended while the commit waits for a standby that does not exist: the sale is on disk
by then. PgBouncer answers with a coded error, which does not mean that nothing was committed. Each sale must
have a captured payment in the end.
"""

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

program, postgres, folder = sys.argv[1:4]
host, server_port = re.search(r"@([^:/]+):(\d+)/", postgres).groups()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def sql(statement, database="postgres"):
    command = ["psql", "-h", host, "-p", server_port, "-U", "postgres", "-d", database, "-Atqc", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def post(url, ticket):
    body = json.dumps({"ticket_id": ticket, "client_id": "ana"}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def start_pgbouncer(port):
    settings, users = os.path.join(folder, "pgbouncer.ini"), os.path.join(folder, "pgbouncer.users")
    with open(users, "w") as file:
        file.write('"postgres" ""\n')
    with open(settings, "w") as file:
        file.write(
            f"[databases]\n* = host={host} port={server_port} user=postgres\n[pgbouncer]\n"
            f"listen_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\nauth_file={users}\n"
            "pool_mode=session\nignore_startup_parameters=extra_float_digits\nunix_socket_dir=\n"
        )
    command = ["pgbouncer", "-q", settings]
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
        command = ["setpriv", *ids, "--", *command]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start_shop(database, pgbouncer_port):
    environment = dict(
        os.environ, PORT="0", LOCK_TYPE="native", LOCK_URL="", DATA_DIR=os.path.join(folder, "lost_commits"),
        DATABASE_URL=f"postgres://postgres@127.0.0.1:{pgbouncer_port}/{database}",
    )
    shop = subprocess.Popen([program], env=environment, stdout=subprocess.PIPE, text=True)
    url = None
    for line in shop.stdout:
        if line.startswith("Ticketing: "):
            url = line.split()[1].replace("localhost", "127.0.0.1")
        if line.startswith("Press"):
            return shop, url
    sys.exit("the shop does not start")


def lose_a_commit(url, database, ticket):
    """True if the connection was ended in the middle of the commit."""
    while post(url + "/reserve_ticket", ticket)[0] != 200:
        time.sleep(0.2)
    booking = threading.Thread(target=post, args=(url + "/book_ticket", ticket))
    booking.start()
    ended = ""
    while booking.is_alive() and not ended:
        ended = sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE wait_event = 'SyncRep' AND datname = '{database}'"
        )
        time.sleep(0.05)
    booking.join()
    return bool(ended)


database = f"lost_commits_{os.getpid()}"
sql(f"CREATE DATABASE {database}")
sql(f"ALTER DATABASE {database} SET synchronous_commit = 'local'")
port = free_port()
children = [start_pgbouncer(port)]
try:
    time.sleep(2)
    shop, url = start_shop(database, port)
    children.append(shop)
    # Only sales wait for the standby.
    sql(
        "CREATE FUNCTION wait_for_standby() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "PERFORM set_config('synchronous_commit', 'on', true); RETURN new; END$$; "
        "CREATE TRIGGER wait_for_standby BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION wait_for_standby()",
        database,
    )
    sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    sql("SELECT pg_reload_conf()")
    time.sleep(1)
    lost = sum(lose_a_commit(url, database, str(ticket)) for ticket in range(1, 5))
    sql("ALTER SYSTEM RESET synchronous_standby_names")
    sql("SELECT pg_reload_conf()")
    time.sleep(12)
    sales = int(sql("SELECT COUNT(*) FROM sales", database))
    unpaid = sql(
        "SELECT sales.ticket_id, payments.state FROM sales JOIN payments USING (payment) "
        "WHERE payments.state <> 'captured'",
        database,
    )
    print(f"{lost} commits lost, {sales} sales, not paid: {unpaid.split() or 'none'}")
    if lost == 0 or sales == 0 or unpaid:
        sys.exit(1)
finally:
    sql("ALTER SYSTEM RESET synchronous_standby_names")
    sql("SELECT pg_reload_conf()")
    for child in children:
        child.terminate()
        child.wait()
    sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
