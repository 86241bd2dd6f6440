// Command clients checks a server with pgx, lib/pq and gorm.
//
// usage: go run . HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]; the password is $PGPASSWORD.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lib/pq"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// What one check may take.
const checkMax = 60 * time.Second

type check struct {
	line string
	run  func(ctx context.Context, server string) error
}

var checks = []check{
	{"pgx: parameters without a type at LIMIT, OFFSET, ANY and IN; every scalar type there and back; NULLs", pgxParameters},
	{"pgx: generated keys with RETURNING, rows into structs, update, delete, tags", pgxChanges},
	{"pgx: a batch, CopyFrom, transactions and savepoints, errors with their codes, a pool", pgxBatches},
	{"lib/pq over database/sql: parameters, pq.Array, generated keys, transactions, CopyIn, ColumnTypes, errors", libpq},
	{"gorm: AutoMigrate twice, HasTable, HasColumn, ColumnTypes, GetIndexes", gormMigrates},
	{"gorm: Create, CreateInBatches, Find with Where, Limit and Offset, Joins, Preload, Save, Updates, soft Delete", gormFinds},
	{"gorm: transactions, FirstOrCreate, Raw, Scan, errors", gormTransactions},
	{"gorm: clause.OnConflict, DoNothing and DoUpdates; unique keys are enforced", gormConflicts},
}

func main() {
	var words []string
	keepsGoing, only := false, ""
	for i := 1; i < len(os.Args); i++ {
		switch os.Args[i] {
		case "--keep-going":
			keepsGoing = true
		case "--only":
			i++
			only = os.Args[i]
		default:
			words = append(words, os.Args[i])
		}
	}
	server := url.URL{Scheme: "postgres", Host: words[0] + ":" + words[1], User: url.UserPassword(words[2], os.Getenv("PGPASSWORD")), Path: words[2], RawQuery: "sslmode=disable"}
	if len(words) > 3 {
		server.Path = words[3]
	}
	fmt.Println("client  pgx, lib/pq and gorm (tests/clients/go/go.mod)")
	failed := false
	for _, one := range checks {
		if !strings.Contains(one.line, only) {
			continue
		}
		started := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), checkMax)
		err := one.run(ctx, server.String())
		cancel()
		if err == nil {
			fmt.Printf("ok      %s (%.2f s)\n", one.line, time.Since(started).Seconds())
			continue
		}
		failed = true
		fmt.Printf("FAILED  %s\n        %s\n", one.line, strings.ReplaceAll(err.Error(), "\n", "\n        "))
		if !keepsGoing {
			break
		}
	}
	if failed {
		os.Exit(1)
	}
}

// equal is an error unless both are the same, in value and in type.
func equal(got, expected any, what string) error {
	if reflect.DeepEqual(got, expected) {
		return nil
	}
	return fmt.Errorf("%s: expected %#v, got %#v", what, expected, got)
}

// first is the first error there is, with what was done.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func said(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// code is the SQLSTATE of an error.
func code(err error) string {
	var one *pgconn.PgError
	if errors.As(err, &one) {
		return one.Code
	}
	var other *pq.Error
	if errors.As(err, &other) {
		return string(other.Code)
	}
	return fmt.Sprint(err)
}

func column[T any](ctx context.Context, connection *pgx.Conn, query string, arguments ...any) ([]T, error) {
	rows, err := connection.Query(ctx, query, arguments...)
	if err != nil {
		return nil, said(query, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	return values, said(query, err)
}

func pgxParameters(ctx context.Context, server string) error {
	connection, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	const numbers = "SELECT i FROM generate_series(1, $1::bigint) AS g(i) "
	for _, one := range []struct {
		query     string
		arguments []any
		expected  []int64
	}{
		{numbers + "ORDER BY i LIMIT $2 OFFSET $3", []any{10, 3, 2}, []int64{3, 4, 5}},
		{numbers + "WHERE i = ANY($2)", []any{5, []int64{2, 3, 9}}, []int64{2, 3}},
		{numbers + "WHERE NOT i = ANY($2::bigint[])", []any{3, []int64{2, 3}}, []int64{1}},
		{numbers + "WHERE i IN ($2, $3) AND i <> $4", []any{5, 1, 2, 1}, []int64{2}},
		{numbers + "WHERE i BETWEEN $2 AND $3", []any{5, 2, 3}, []int64{2, 3}},
	} {
		got, err := column[int64](ctx, connection, one.query, one.arguments...)
		if err := first(err, equal(got, one.expected, one.query)); err != nil {
			return err
		}
	}
	day := time.Date(2024, 2, 29, 12, 30, 0, 5000, time.UTC)
	for _, one := range []struct {
		kind  string
		value any
	}{
		{"smallint", int16(-5)}, {"int", int32(7)}, {"bigint", int64(1) << 60}, {"real", float32(1.5)}, {"double precision", -1e300}, {"boolean", true},
		{"text", "it's \"ü\" %"}, {"bytea", []byte{0, 255}}, {"timestamptz", day}, {"date", day.Truncate(24 * time.Hour)},
	} {
		var got any
		query := fmt.Sprintf("SELECT $1::%s, NULL::%s", one.kind, one.kind)
		var null any
		if err := connection.QueryRow(ctx, query, one.value).Scan(&got, &null); err != nil {
			return said(query, err)
		}
		if at, is := got.(time.Time); is {
			got = at.UTC()
		}
		if err := first(equal(got, one.value, query), equal(null, nil, query)); err != nil {
			return err
		}
	}
	var number pgtype.Numeric
	var list []string
	if err := connection.QueryRow(ctx, "SELECT $1::numeric(10,2), $2::text[]", "12.50", []string{"a", "b,\""}).Scan(&number, &list); err != nil {
		return said("numeric and text[]", err)
	}
	value, _ := number.Float64Value()
	return first(equal(value.Float64, 12.5, "numeric"), equal(list, []string{"a", "b,\""}, "text[]"))
}

type thing struct {
	ID    int64
	Name  string
	Price *float64
	Made  time.Time
}

const things = `CREATE TABLE %s (id BIGSERIAL PRIMARY KEY, name VARCHAR(50) NOT NULL, price DOUBLE PRECISION, made TIMESTAMPTZ NOT NULL DEFAULT now())`

func pgxChanges(ctx context.Context, server string) error {
	connection, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	for _, statement := range []string{"DROP TABLE IF EXISTS pgx_things", fmt.Sprintf(things, "pgx_things")} {
		if _, err := connection.Exec(ctx, statement); err != nil {
			return said(statement, err)
		}
	}
	var one, other int64
	const insert = "INSERT INTO pgx_things (name, price) VALUES ($1, $2) RETURNING id"
	if err := first(connection.QueryRow(ctx, insert, "a", 1.5).Scan(&one), connection.QueryRow(ctx, insert, "b", nil).Scan(&other)); err != nil {
		return said(insert, err)
	}
	if other <= one {
		return fmt.Errorf("keys %d, %d", one, other)
	}
	rows, _ := connection.Query(ctx, "SELECT id, name, price, made FROM pgx_things WHERE name = $1 ORDER BY id LIMIT $2", "a", 5)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[thing])
	if err != nil {
		return err
	}
	if len(found) != 1 || found[0].ID != one || *found[0].Price != 1.5 || time.Since(found[0].Made).Abs() > 10*time.Minute {
		return fmt.Errorf("found %v", found)
	}
	updated, err := connection.Exec(ctx, "UPDATE pgx_things SET price = coalesce(price, $2) + $1 WHERE id = ANY($3)", 1.0, 0.5, []int64{one, other})
	if err := first(err, equal(updated.RowsAffected(), int64(2), "rows updated")); err != nil {
		return err
	}
	prices, err := column[float64](ctx, connection, "DELETE FROM pgx_things WHERE id = $1 RETURNING price", other)
	return first(err, equal(prices, []float64{1.5}, "deleted"))
}

func pgxBatches(ctx context.Context, server string) error {
	pool, err := pgxpool.New(ctx, server)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, statement := range []string{"DROP TABLE IF EXISTS pgx_batches", "CREATE TABLE pgx_batches (a int, b text, c numeric(10,2), d timestamptz)"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return said(statement, err)
		}
	}
	batch := &pgx.Batch{}
	for i := range 5 {
		batch.Queue("INSERT INTO pgx_batches (a, b) VALUES ($1, $2)", i, fmt.Sprint("row ", i))
	}
	batch.Queue("SELECT count(*) FROM pgx_batches WHERE a >= $1", 2)
	results := pool.SendBatch(ctx, batch)
	for range 5 {
		if _, err := results.Exec(); err != nil {
			return said("batch", err)
		}
	}
	var count int64
	if err := first(results.QueryRow().Scan(&count), results.Close(), equal(count, int64(3), "count in a batch")); err != nil {
		return err
	}
	copied, err := pool.CopyFrom(ctx, pgx.Identifier{"pgx_batches"}, []string{"a", "b", "c", "d"}, pgx.CopyFromSlice(1000, func(i int) ([]any, error) {
		return []any{100 + i, "copied", "1.25", time.Unix(int64(i), 0)}, nil
	}))
	if err := first(said("CopyFrom", err), equal(copied, int64(1000), "rows copied")); err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = inner.Exec(ctx, "INSERT INTO pgx_batches (a) VALUES ($1)", -1)
	if err := first(err, inner.Rollback(ctx)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM pgx_batches WHERE a < $1", 100)
	if err := first(err, tx.Commit(ctx)); err != nil {
		return err
	}
	var sum float64
	if err := pool.QueryRow(ctx, "SELECT count(*), sum(c)::float8 FROM pgx_batches").Scan(&count, &sum); err != nil {
		return err
	}
	_, missing := pool.Exec(ctx, "SELECT * FROM pgx_nosuch WHERE a = $1", 1)
	_, text := pool.Exec(ctx, "SELECT $1::text::int", "x")
	return first(equal(count, int64(1000), "count"), equal(sum, 1250.0, "sum"), equal(code(missing), "42P01", "no table"), equal(code(text), "22P02", "no number"))
}

func libpq(ctx context.Context, server string) error {
	database, err := sql.Open("postgres", server)
	if err != nil {
		return err
	}
	defer database.Close()
	for _, statement := range []string{"DROP TABLE IF EXISTS libpq_things", fmt.Sprintf(things, "libpq_things")} {
		if _, err := database.ExecContext(ctx, statement); err != nil {
			return said(statement, err)
		}
	}
	var one, other int64
	const insert = "INSERT INTO libpq_things (name, price) VALUES ($1, $2) RETURNING id"
	if err := first(database.QueryRowContext(ctx, insert, "a", 1.5).Scan(&one), database.QueryRowContext(ctx, insert, "b", nil).Scan(&other)); err != nil {
		return said(insert, err)
	}
	rows, err := database.QueryContext(ctx, "SELECT id, name, price, made FROM libpq_things WHERE id = ANY($1) ORDER BY id LIMIT $2 OFFSET $3", pq.Array([]int64{one, other}), 1, 1)
	if err != nil {
		return err
	}
	var names, kinds []string
	columns, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	for _, column := range columns {
		kinds = append(kinds, column.DatabaseTypeName())
	}
	var price sql.NullFloat64
	for rows.Next() {
		var name string
		var id int64
		var made time.Time
		if err := rows.Scan(&id, &name, &price, &made); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := first(rows.Err(), equal(names, []string{"b"}, "names"), equal(price.Valid, false, "price"), equal(kinds, []string{"INT8", "VARCHAR", "FLOAT8", "TIMESTAMPTZ"}, "types")); err != nil {
		return err
	}
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	copy, err := tx.Prepare(pq.CopyIn("libpq_things", "name", "price"))
	if err != nil {
		return said("CopyIn", err)
	}
	for i := range 100 {
		if _, err := copy.Exec(fmt.Sprint("copied ", i), float64(i)); err != nil {
			return said("CopyIn", err)
		}
	}
	if _, err := copy.Exec(); err != nil {
		return said("CopyIn", err)
	}
	result, err := tx.Exec("UPDATE libpq_things SET price = $1 WHERE price > $2", 0, 89.5)
	if err := first(copy.Close(), err); err != nil {
		return err
	}
	changed, _ := result.RowsAffected()
	if err := first(tx.Commit(), equal(changed, int64(10), "rows changed")); err != nil {
		return err
	}
	var count int
	if err := database.QueryRow("SELECT count(*) FROM libpq_things WHERE price = $1", 0).Scan(&count); err != nil {
		return err
	}
	_, missing := database.Query("SELECT * FROM libpq_nosuch WHERE a = $1", 1)
	return first(equal(count, 11, "count"), equal(code(missing), "42P01", "no table"))
}

type Owner struct {
	gorm.Model
	Name   string `gorm:"size:60;uniqueIndex"`
	Age    uint8
	Weight *float64
	Pets   []Pet
}

func (Owner) TableName() string { return "gorm_owners" }

type Pet struct {
	ID      uint   `gorm:"primaryKey"`
	Name    string `gorm:"index;not null;default:nobody"`
	OwnerID uint
	Owner   Owner
	Born    time.Time      `gorm:"type:date"`
	Price   pgtype.Numeric `gorm:"type:numeric(10,2)"`
	Extra   map[string]any `gorm:"serializer:json;type:jsonb"`
	Bought  sql.NullTime
}

func (Pet) TableName() string { return "gorm_pets" }

// opened is the database with the tables made anew.
func opened(ctx context.Context, server string) (*gorm.DB, error) {
	database, err := gorm.Open(postgres.Open(server), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	database = database.WithContext(ctx)
	if err := database.Migrator().DropTable(&Pet{}, &Owner{}); err != nil {
		return nil, said("DropTable", err)
	}
	return database, said("AutoMigrate", database.AutoMigrate(&Owner{}, &Pet{}))
}

func closed(database *gorm.DB) {
	if pool, err := database.DB(); err == nil {
		pool.Close()
	}
}

func gormMigrates(ctx context.Context, server string) error {
	database, err := opened(ctx, server)
	if err != nil {
		return err
	}
	defer closed(database)
	if err := database.AutoMigrate(&Owner{}, &Pet{}); err != nil {
		return said("AutoMigrate again", err)
	}
	migrator := database.Migrator()
	if !migrator.HasTable(&Pet{}) || !migrator.HasColumn(&Pet{}, "born") || migrator.HasColumn(&Pet{}, "nosuch") || !migrator.HasIndex(&Pet{}, "Name") || !migrator.HasConstraint(&Owner{}, "Pets") {
		return errors.New("HasTable, HasColumn, HasIndex, HasConstraint")
	}
	columns, err := migrator.ColumnTypes(&Pet{})
	if err != nil {
		return said("ColumnTypes", err)
	}
	var got []string
	for _, column := range columns {
		nullable, _ := column.Nullable()
		primary, _ := column.PrimaryKey()
		got = append(got, fmt.Sprint(column.Name(), " ", column.DatabaseTypeName(), " ", nullable, " ", primary))
	}
	expected := []string{"id int8 false true", "name text false false", "owner_id int8 true false", "born date true false", "price numeric true false", "extra jsonb true false", "bought timestamptz true false"}
	if err := equal(got, expected, "ColumnTypes"); err != nil {
		return err
	}
	indexes, err := migrator.GetIndexes(&Pet{})
	if err := first(said("GetIndexes", err), equal(len(indexes), 1, "indexes")); err != nil {
		return err
	}
	type Pet struct{ Colour string }
	if err := first(database.Table("gorm_pets").Migrator().AddColumn(&Pet{}, "Colour"), database.Table("gorm_pets").Migrator().DropColumn(&Pet{}, "Colour")); err != nil {
		return said("AddColumn, DropColumn", err)
	}
	return nil
}

func gormFinds(ctx context.Context, server string) error {
	database, err := opened(ctx, server)
	if err != nil {
		return err
	}
	defer closed(database)
	born := time.Date(2020, 2, 29, 0, 0, 0, 0, time.UTC)
	owner := Owner{Name: "Ann", Age: 30, Pets: []Pet{{Name: "Rex", Born: born, Extra: map[string]any{"legs": 4.0}}, {Name: "Tom"}}}
	if err := said("Create", database.Create(&owner).Error); err != nil {
		return err
	}
	if owner.ID == 0 || owner.Pets[1].ID <= owner.Pets[0].ID {
		return fmt.Errorf("keys %v", owner)
	}
	pets := make([]Pet, 25)
	for i := range pets {
		pets[i] = Pet{Name: fmt.Sprintf("pet %02d", i), OwnerID: owner.ID}
	}
	if err := said("CreateInBatches", database.CreateInBatches(&pets, 10).Error); err != nil {
		return err
	}
	var page []Pet
	if err := database.Where("owner_id = ? AND name LIKE ?", owner.ID, "pet%").Order("name DESC").Limit(2).Offset(1).Find(&page).Error; err != nil {
		return said("Find", err)
	}
	var some []string
	if err := database.Model(&Pet{}).Where("name IN ?", []string{"Rex", "pet 03", "none"}).Order("id").Pluck("name", &some).Error; err != nil {
		return said("Pluck", err)
	}
	var joined Pet
	if err := database.Joins("Owner").First(&joined, "gorm_pets.name = ?", "Rex").Error; err != nil {
		return said("Joins", err)
	}
	var loaded Owner
	if err := database.Preload("Pets", "name < ?", "a").First(&loaded, owner.ID).Error; err != nil {
		return said("Preload", err)
	}
	if err := first(equal(len(page), 2, "page"), equal(page[0].Name, "pet 23", "page"), equal(some, []string{"Rex", "pet 03"}, "some"), equal(joined.Owner.Name, "Ann", "owner"),
		equal(joined.Extra, map[string]any{"legs": 4.0}, "document"), equal(joined.Born.Format(time.DateOnly), "2020-02-29", "born"), equal(len(loaded.Pets), 2, "preloaded")); err != nil {
		return err
	}
	loaded.Age = 31
	if err := said("Save", database.Omit("Pets").Save(&loaded).Error); err != nil {
		return err
	}
	updated := database.Model(&Pet{}).Where("name LIKE ?", "pet 1%").Updates(map[string]any{"name": gorm.Expr("upper(name)")})
	deleted := database.Where("name = ?", "Tom").Delete(&Pet{})
	hidden := database.Delete(&owner)
	var owners, all int64
	return first(updated.Error, deleted.Error, hidden.Error, database.Model(&Owner{}).Count(&owners).Error, database.Unscoped().Model(&Owner{}).Where("age", 31).Count(&all).Error,
		equal(updated.RowsAffected, int64(10), "updated"), equal(deleted.RowsAffected, int64(1), "deleted"), equal(owners, int64(0), "owners"), equal(all, int64(1), "owners hidden"))
}

func gormTransactions(ctx context.Context, server string) error {
	database, err := opened(ctx, server)
	if err != nil {
		return err
	}
	defer closed(database)
	err = database.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Owner{Name: "kept"}).Error; err != nil {
			return err
		}
		undone := errors.New("undone")
		if err := tx.Transaction(func(inner *gorm.DB) error { return first(inner.Create(&Owner{Name: "undone"}).Error, undone) }); !errors.Is(err, undone) {
			return fmt.Errorf("undone: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var one Owner
	if err := first(database.FirstOrCreate(&one, Owner{Name: "new"}).Error, database.Where(Owner{Name: "new"}).Assign(Owner{Age: 5}).FirstOrCreate(&one).Error); err != nil {
		return said("FirstOrCreate", err)
	}
	var got []struct {
		Name string
		N    int
	}
	if err := database.Raw("SELECT name, count(*) AS n FROM gorm_owners WHERE age < ? GROUP BY name ORDER BY name", 6).Scan(&got).Error; err != nil {
		return said("Raw", err)
	}
	missing := database.First(&Owner{}, "name = ?", "nobody").Error
	if !errors.Is(missing, gorm.ErrRecordNotFound) {
		return fmt.Errorf("nobody: %w", missing)
	}
	return first(equal(len(got), 2, "groups"), equal(got[0].Name+got[1].Name, "keptnew", "names"), equal(code(database.Exec("SELECT * FROM gorm_nosuch").Error), "42P01", "no table"))
}

func gormConflicts(ctx context.Context, server string) error {
	database, err := opened(ctx, server)
	if err != nil {
		return err
	}
	defer closed(database)
	ignored := database.Clauses(clause.OnConflict{DoNothing: true})
	changed := database.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"age"})})
	var age int
	return first(database.Create(&Owner{Name: "a"}).Error, ignored.Create(&Owner{Name: "a"}).Error, changed.Create(&Owner{Name: "a", Age: 9}).Error,
		database.Model(&Owner{}).Select("max(age) + count(*) * 100").Scan(&age).Error, equal(age, 109, "age"),
		equal(code(database.Create(&Owner{Name: "a"}).Error), "23505", "unique"))
}
