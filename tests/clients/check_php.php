<?php
// PHP: PDO and the functions pg_*. usage: check_php.php HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]; the password is $PGPASSWORD.

declare(strict_types=1);

// What one statement may take.
const STATEMENT_SECONDS_MAX = 60;

$words = array_slice($argv, 1);
$keepsGoing = in_array("--keep-going", $words, true);
$words = array_values(array_diff($words, ["--keep-going"]));
$only = "";
if (($place = array_search("--only", $words, true)) !== false) {
    [, $only] = array_splice($words, $place, 2);
}
[$host, $port, $user] = $words;
$database = $words[3] ?? $user;
$password = getenv("PGPASSWORD") ?: "";
$checks = [];

function check(string $line, callable $run): void
{
    global $checks;
    $checks[$line] = $run;
}

function equal(mixed $got, mixed $expected, string $what = ""): void
{
    if ($got !== $expected) {
        throw new Exception("$what expected " . json_encode($expected) . ", got " . json_encode($got));
    }
}

function connected(array $options = []): PDO
{
    global $host, $port, $user, $database, $password;
    $connection = new PDO("pgsql:host=$host;port=$port;dbname=$database", $user, $password, $options + [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC]);
    $connection->exec("SET statement_timeout = '" . STATEMENT_SECONDS_MAX . "s'");
    return $connection;
}

function refused(string $code, callable $run): void
{
    try {
        $run();
    } catch (PDOException $error) {
        equal($error->getCode(), $code, $error->getMessage());
        return;
    }
    throw new Exception("expected $code");
}

function made(PDO $connection): void
{
    $connection->exec("DROP TABLE IF EXISTS php_things");
    $connection->exec("CREATE TABLE php_things (id SERIAL PRIMARY KEY, name VARCHAR(50) NOT NULL, price NUMERIC(10,2), ok BOOLEAN DEFAULT false, made TIMESTAMP DEFAULT CURRENT_TIMESTAMP)");
}

check("PDO: prepared on the server and emulated: named and numbered parameters, LIMIT and OFFSET, types, NULL", function () {
    foreach ([false, true] as $emulated) {
        $connection = connected([PDO::ATTR_EMULATE_PREPARES => $emulated]);
        made($connection);
        $insert = $connection->prepare("INSERT INTO php_things (name, price, ok) VALUES (:name, :price, :ok)");
        foreach ([["it's \"ü\" \\ ?", "1.50", true], ["b", null, false], ["c", "3", false]] as [$name, $price, $ok]) {
            $insert->bindValue("name", $name);
            $insert->bindValue("price", $price);
            $insert->bindValue("ok", $ok, PDO::PARAM_BOOL);
            $insert->execute();
        }
        $found = $connection->prepare("SELECT name, price, ok FROM php_things WHERE id > ? ORDER BY id LIMIT ? OFFSET ?");
        $found->execute([0, 2, 0]);
        equal($found->fetchAll(), [["name" => "it's \"ü\" \\ ?", "price" => "1.50", "ok" => true], ["name" => "b", "price" => null, "ok" => false]]);
        $counted = $connection->prepare("SELECT count(*) FROM php_things WHERE name = :a OR name IN (:b, :c) OR price = :d");
        $counted->execute(["a" => "b", "b" => "c", "c" => "none", "d" => 1.5]);
        equal($counted->fetchColumn(), 3);
    }
});

check("PDO: lastInsertId, RETURNING, rowCount, update, delete, column metadata", function () {
    $connection = connected();
    made($connection);
    $connection->exec("INSERT INTO php_things (name) VALUES ('a')");
    $first = (int) $connection->lastInsertId();
    equal((int) $connection->lastInsertId("php_things_id_seq"), $first);
    $insert = $connection->prepare("INSERT INTO php_things (name, price) VALUES (?, ?) RETURNING id, ok");
    $insert->execute(["b", "2.5"]);
    $row = $insert->fetch();
    equal([$row["id"] > $first, $row["ok"]], [true, false]);
    $update = $connection->prepare("UPDATE php_things SET price = coalesce(price, 0) + ? WHERE id <= ?");
    $update->execute([1, $row["id"]]);
    equal($update->rowCount(), 2);
    equal($connection->query("SELECT price FROM php_things ORDER BY id")->fetchAll(PDO::FETCH_COLUMN), ["1.00", "3.50"]);
    $meta = $connection->query("SELECT id, name, made FROM php_things")->getColumnMeta(0);
    equal([$meta["name"], $meta["native_type"], $meta["table"]], ["id", "int4", "php_things"]);
    equal($connection->exec("DELETE FROM php_things WHERE id = " . $row["id"]), 1);
});

check("PDO: transactions, savepoints, errors with their codes", function () {
    $connection = connected();
    made($connection);
    $connection->beginTransaction();
    $connection->exec("INSERT INTO php_things (name) VALUES ('kept')");
    $connection->exec("SAVEPOINT inner_one");
    $connection->exec("INSERT INTO php_things (name) VALUES ('undone')");
    $connection->exec("ROLLBACK TO SAVEPOINT inner_one");
    $connection->commit();
    equal($connection->query("SELECT name FROM php_things")->fetchAll(PDO::FETCH_COLUMN), ["kept"]);
    $connection->beginTransaction();
    $connection->exec("DELETE FROM php_things");
    $connection->rollBack();
    equal($connection->query("SELECT count(*) FROM php_things")->fetchColumn(), 1);
    refused("42P01", fn () => $connection->query("SELECT * FROM php_nosuch"));
    refused("22P02", fn () => $connection->prepare("SELECT ?::int")->execute(["x"]));
    refused("23502", fn () => $connection->exec("INSERT INTO php_things (name) VALUES (NULL)"));
});

check("PDO: pgsqlCopyFromArray, pgsqlCopyToArray, a cursor that scrolls, bytea", function () {
    $connection = connected();
    $connection->exec("DROP TABLE IF EXISTS php_copied");
    $connection->exec("CREATE TABLE php_copied (a int, b text)");
    equal($connection->pgsqlCopyFromArray("php_copied", ["1\tx", "2\t\\\\N", "3\tz"]), true);
    equal($connection->pgsqlCopyToArray("php_copied"), ["1\tx\n", "2\t\\\\N\n", "3\tz\n"]);
    $connection->beginTransaction();
    $cursor = $connection->prepare("SELECT a FROM php_copied ORDER BY a", [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $cursor->execute();
    $fetch = fn (int $way, int $offset = 0) => $cursor->fetch(PDO::FETCH_NUM, $way, $offset)[0] ?? null;
    equal([$fetch(PDO::FETCH_ORI_NEXT), $fetch(PDO::FETCH_ORI_LAST), $fetch(PDO::FETCH_ORI_PRIOR), $fetch(PDO::FETCH_ORI_ABS, 1)], [1, 3, 2, 1]);
    $connection->commit();
    $bytes = $connection->prepare("SELECT ?::bytea");
    $bytes->bindValue(1, "\x00\xff'", PDO::PARAM_LOB);
    $bytes->execute();
    equal(bin2hex(stream_get_contents($bytes->fetchColumn())), "00ff27");
});

check("pg_*: pg_query_params, pg_prepare, pg_insert, pg_select, pg_update, pg_delete, pg_copy_from, pg_meta_data, errors", function () {
    global $host, $port, $user, $database, $password;
    made(connected());
    $connection = pg_connect("host=$host port=$port dbname=$database user=$user" . ($password === "" ? "" : " password=$password"));
    pg_query($connection, "SET statement_timeout = '" . STATEMENT_SECONDS_MAX . "s'");
    equal(array_column(pg_meta_data($connection, "php_things"), "type"), ["int4", "varchar", "numeric", "bool", "timestamp"]);
    equal(pg_insert($connection, "php_things", ["name" => "a", "price" => "1.5"]) !== false, true);
    $result = pg_query_params($connection, 'INSERT INTO php_things (name) VALUES ($1), ($2) RETURNING id', ["b", "c"]);
    equal([pg_num_rows($result), pg_field_type($result, 0), pg_field_table($result, 0)], [2, "int4", "php_things"]);
    pg_prepare($connection, "by_name", 'SELECT id, price FROM php_things WHERE name = ANY($1) ORDER BY id LIMIT $2');
    equal(pg_fetch_all_columns(pg_execute($connection, "by_name", ["{a,b}", 5]), 1), ["1.50", null]);
    equal(pg_update($connection, "php_things", ["price" => "2"], ["name" => "b"]), true);
    equal(array_column(pg_select($connection, "php_things", ["name" => "b"]), "price"), ["2.00"]);
    equal(pg_delete($connection, "php_things", ["name" => "b"]), true);
    equal(pg_copy_from($connection, "php_things", ["10\tcopied\t1\tt\t2024-02-29 12:00:00"]), true);
    equal(pg_fetch_result(pg_query($connection, "SELECT count(*) FROM php_things"), 0, 0), "3");
    pg_send_query($connection, "SELECT * FROM php_nosuch");
    equal(pg_result_error_field(pg_get_result($connection), PGSQL_DIAG_SQLSTATE), "42P01");
    equal(pg_affected_rows(pg_query($connection, "UPDATE php_things SET ok = true")), 3);
});

echo "client  PHP ", PHP_VERSION, ": PDO and pgsql\n";
$failed = 0;
set_error_handler(fn ($kind, $text) => throw new ErrorException($text));
foreach ($checks as $line => $run) {
    if ($only !== "" && !str_contains($line, $only)) {
        continue;
    }
    $started = microtime(true);
    try {
        $run();
        printf("ok      %s (%.2f s)\n", $line, microtime(true) - $started);
    } catch (Throwable $error) {
        $failed++;
        echo "FAILED  $line\n        ", str_replace("\n", "\n        ", $error->getMessage() . "\n" . $error->getTraceAsString()), "\n";
        if (!$keepsGoing) {
            break;
        }
    }
}
exit($failed ? 1 : 0);
