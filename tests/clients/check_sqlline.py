"""sqlline, a shell over JDBC. usage: check_sqlline.py HOST PORT USER [DATABASE]; the jars are in $HARRIER_CLIENTS/java"""

import os
import re
import subprocess

from checks import Program, holds

JARS = os.path.join(os.environ.get("HARRIER_CLIENTS") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.harrier/clients"), "java")
program = Program("sqlline over pgjdbc")


def sqlline(*lines):
    """What sqlline prints for these lines."""
    ran = subprocess.run(
        ["java", "-cp", f"{JARS}/sqlline.jar:{JARS}/postgresql.jar", "sqlline.SqlLine", "-d", "org.postgresql.Driver", "-u",
         f"jdbc:postgresql://{program.host}:{program.port}/{program.database}?sslmode=prefer", "-n", program.user, "-p", program.password,
         "--color=false", "--silent=false", "--outputformat=csv", "--showElapsedTime=false", "--historyFile=/dev/null"],
        input="\n".join(lines) + "\n!quit\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TERM": "dumb"})
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", ran.stdout)


@program.check
def statements():
    """connect, statements, results, errors, transactions"""
    text = sqlline(
        "DROP TABLE IF EXISTS sqlline_table;", "CREATE TABLE sqlline_table (id int, name text, price numeric(10,2), day date);",
        "INSERT INTO sqlline_table VALUES (1, 'ü', 1.50, DATE '1969-07-20'), (2, NULL, NULL, NULL);", "SELECT * FROM sqlline_table ORDER BY id;",
        "SELECT * FROM sqlline_nosuch;", "!autocommit off", "DELETE FROM sqlline_table;", "!rollback", "SELECT count(*) AS n FROM sqlline_table;", "!commit", "!autocommit on",
        "SELECT 'a' || 'bc' AS joined;",
    )
    holds("'1','ü','1.50','1969-07-20'" in text and "'2','','null','null'" in text, text)
    holds("42P01" in text and "sqlline_nosuch" in text, text)
    holds("'2'\n" in text and "'abc'" in text, text)


@program.check
def metadata():
    """!tables, !columns, !describe, !metadata, !typeinfo, !dbinfo, !indexes and !primarykeys, which are empty"""
    text = sqlline("!tables", "!columns sqlline_table", "!describe sqlline_table", "!metadata getSchemas", "!typeinfo", "!dbinfo", "!primarykeys sqlline_table", "!indexes sqlline_table",
                   "!schemas", "!isolation TRANSACTION_READ_COMMITTED", "DROP TABLE sqlline_table;", "SELECT 'the' || 'end' AS last;")
    holds("sqlline_table" in text and "'price'" in text and "information_schema" in text and "int4" in text and "getDatabaseProductName" in text, text)
    holds("Error" not in text, text)
    holds("theend" in text, text)


program.run()
