# ActiveRecord of Debian: migrations, models, relations, queries. usage: check_activerecord.rb HOST PORT USER [DATABASE] [--keep-going] [--only TEXT]

require "active_record"
require "timeout"

# What one check may take.
CHECK_SECONDS_MAX = 60

KEEPS_GOING = !ARGV.delete("--keep-going").nil?
ONLY = (place = ARGV.index("--only")) ? ARGV.slice!(place, 2).last : ""
HOST, PORT, USER, DATABASE = ARGV

ActiveRecord::Base.establish_connection(
  adapter: "postgresql", host: HOST, port: PORT.to_i, username: USER, password: ENV["PGPASSWORD"], database: DATABASE || USER, pool: 3,
)
ActiveRecord::Migration.verbose = false

class Author < ActiveRecord::Base
  self.table_name = "record_authors"
  has_many :books
  validates :name, presence: true
end

class Book < ActiveRecord::Base
  self.table_name = "record_books"
  belongs_to :author, optional: true
  scope :long, -> { where("pages > ?", 5) }
end

class MakeTables < ActiveRecord::Migration[6.1]
  def change
    create_table :record_authors do |table|
      table.string :name, null: false, limit: 60
      table.date :born
      table.timestamps
    end
    create_table :record_books do |table|
      table.references :author, index: true, foreign_key: { to_table: :record_authors }
      table.string :title, default: "untitled"
      table.decimal :price, precision: 10, scale: 2
      table.integer :pages
      table.datetime :read_at
      table.jsonb :extra
    end
    add_index :record_authors, :name, unique: true
  end
end

class ChangeTables < ActiveRecord::Migration[6.1]
  def change
    add_column :record_books, :shelf, :string, default: "A", null: false
    change_column_null :record_books, :shelf, true
    change_column_default :record_books, :shelf, from: "A", to: nil
    rename_column :record_books, :shelf, :place
    reversible { |way| way.up { change_column :record_books, :place, :text } }
    remove_column :record_books, :place, :text
  end
end

CHECKS = {}

def check(line, &run)
  CHECKS[line] = run
end

def equal(got, expected, what = "")
  raise "#{what} expected #{expected.inspect}, got #{got.inspect}" unless got == expected
end

def raises(kind)
  yield
rescue kind => error
  error
else
  raise "expected #{kind}"
end

def connection
  ActiveRecord::Base.connection
end

def anew
  %w[record_books record_authors].each { |name| connection.drop_table(name, if_exists: true, force: :cascade) }
  MakeTables.migrate(:up)
  [Author, Book].each(&:reset_column_information)
end

def filled
  anew
  author = Author.create!(name: "Ursula", born: Date.new(1929, 10, 21))
  10.times { |n| author.books.create!(title: "Book #{n}", pages: n, price: n) }
  author
end

check "connect; the version, encoding and settings it asks for" do
  equal connection.select_value("SELECT 1 + 1").to_i, 2
  equal connection.active?, true
  equal connection.select_value("SHOW intervalstyle"), "iso_8601"
end

check "migrations: tables, references, indexes; columns added, changed, renamed and removed; up and down" do
  anew
  ChangeTables.migrate(:up)
  ChangeTables.migrate(:down)
  equal connection.column_exists?(:record_books, :place), false
  MakeTables.migrate(:down)
  equal connection.table_exists?(:record_books), false
end

check "the migrator with its tables schema_migrations and ar_internal_metadata, and its advisory lock" do
  %w[schema_migrations ar_internal_metadata record_books record_authors].each { |name| connection.drop_table(name, if_exists: true, force: :cascade) }
  make = ActiveRecord::MigrationProxy.new("MakeTables", 20240101000000, "", "")
  make.define_singleton_method(:migration) { MakeTables.new("MakeTables", 20240101000000) }
  2.times { ActiveRecord::Migrator.new(:up, [make], ActiveRecord::SchemaMigration).migrate }
  equal ActiveRecord::SchemaMigration.all_versions, ["20240101000000"]
end

check "create gives the generated key and the defaults; times; a document; validation" do
  author = filled
  equal author.id.is_a?(Integer) && (Time.now - author.created_at).abs < 600, true
  book = Book.create!(extra: { "a" => [1, nil] })
  equal [book.title, book.reload.extra], ["untitled", { "a" => [1, nil] }]
  raises(ActiveRecord::RecordInvalid) { Author.create!(name: "") }
  equal Book.insert_all([{ title: "x" }, { title: "y" }], returning: %w[title]).rows, [["x"], ["y"]]
end

check "find, where, order, limit and offset, joins, includes, aggregates, groups, pluck, exists, find_each" do
  author = filled
  equal Author.find(author.id).born, Date.new(1929, 10, 21)
  equal Author.find_by(name: "Ursula"), author
  equal Book.where(pages: 0..4).order(pages: :desc).limit(2).offset(1).pluck(:title), ["Book 3", "Book 2"]
  equal Book.where(pages: [1, 2, 77]).or(Book.where("title ILIKE ?", "%7")).order(:pages).pluck(:pages), [1, 2, 7]
  equal Book.joins(:author).where(record_authors: { name: "Ursula" }).long.count, 4
  equal Author.includes(:books).map { |one| one.books.size }, [10]
  equal Author.eager_load(:books).where("record_books.pages > 7").flat_map { |one| one.books.map(&:pages) }.sort, [8, 9]
  equal [Book.sum(:price), Book.maximum(:pages), Book.average(:pages)], [BigDecimal("45"), 9, BigDecimal("4.5")]
  equal Book.group("pages % 2").count.values, [5, 5]
  equal [Book.exists?(pages: 9), Book.exists?(pages: 99)], [true, false]
  equal Book.find_each(batch_size: 3).count, 10
  equal Book.where.not(pages: nil).first.pages, 0
  equal Book.distinct.count(:author_id), 1
end

check "save, update, update_all, increment, destroy, delete_all, lock" do
  author = filled
  author.update!(name: "U. K.")
  equal Book.where("pages < 3").update_all("pages = pages + 100"), 3
  book = Book.find_by(pages: 5)
  book.increment!(:pages)
  book.with_lock { book.update!(read_at: Time.utc(2024, 2, 29, 12)) }
  equal [book.reload.pages, book.read_at], [6, Time.utc(2024, 2, 29, 12)]
  book.destroy
  equal Book.where("pages >= 100").delete_all, 3
  equal Book.count, 6
end

check "transactions with a savepoint that is undone; errors of its own kinds" do
  filled
  Book.transaction do
    Book.create!(title: "kept")
    Book.transaction(requires_new: true) do
      Book.create!(title: "undone")
      raise ActiveRecord::Rollback
    end
  end
  equal Book.where(title: %w[kept undone]).pluck(:title), ["kept"]
  raises(ActiveRecord::StatementInvalid) { connection.execute("SELECT * FROM record_nosuch") }
  raises(ActiveRecord::NotNullViolation) { connection.execute("INSERT INTO record_authors (name) VALUES (NULL)") }
  equal Book.count, 11
end

check "unique and foreign keys are enforced; upsert_all and insert_all beside a unique key" do
  author = filled
  now = Time.now
  raises(ActiveRecord::RecordNotUnique) { Author.create!(name: "Ursula") }
  raises(ActiveRecord::InvalidForeignKey) { Book.create!(author_id: author.id + 1) }
  Author.upsert_all([{ name: "Ursula", born: Date.new(2001, 1, 1), created_at: now, updated_at: now }], unique_by: :name)
  Author.insert_all([{ name: "Ursula", created_at: now, updated_at: now }])
  equal Author.pluck(:born), [Date.new(2001, 1, 1)]
end

check "what it reads of the catalog: tables, columns, primary keys, indexes, foreign keys; the dump of the schema" do
  anew
  equal (%w[record_authors record_books] - connection.tables), []
  columns = connection.columns(:record_books).map { |column| [column.name, column.sql_type, column.null] }
  equal columns, [["id", "bigint", false], ["author_id", "bigint", true], ["title", "character varying", true], ["price", "numeric(10,2)", true],
                  ["pages", "integer", true], ["read_at", "timestamp without time zone", true], ["extra", "jsonb", true]]
  equal connection.primary_key(:record_books), "id"
  equal connection.indexes(:record_authors).map { |index| [index.columns, index.unique] }, [[["name"], true]]
  equal connection.foreign_keys(:record_books).map { |key| [key.column, key.to_table] }, [["author_id", "record_authors"]]
  output = StringIO.new
  ActiveRecord::SchemaDumper.dump(connection, output)
  [%(create_table "record_books"), %(t.string "title", default: "untitled"), %(add_foreign_key "record_books", "record_authors", column: "author_id")].each do |line|
    equal output.string.include?(line), true, line
  end
end

puts "client  ActiveRecord #{ActiveRecord::VERSION::STRING}, pg #{PG::VERSION}"
failed = 0
CHECKS.each do |line, run|
  next unless line.include?(ONLY)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  begin
    Timeout.timeout(CHECK_SECONDS_MAX, &run)
    puts format("ok      %s (%.2f s)", line, Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)
  rescue StandardError => error
    failed += 1
    place = error.backtrace.find { |one| one.include?(File.basename(__FILE__)) }
    puts "FAILED  #{line}", "        #{place}", "        #{error.class}: #{error.message.gsub("\n", "\n        ")}"
    break unless KEEPS_GOING
  end
  $stdout.flush
end
exit failed.zero? ? 0 : 1
