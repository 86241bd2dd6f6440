// The server that speaks S3 in the tests: versitygw over a folder of files, and nothing else of it.
// scripts/s3.sh builds it.
//
// usage: versitygw --port ADDRESS [--quiet] posix FOLDER
//
// With these words it is what versitygw's own command is. That one has gateways to other stores, pages,
// accounts kept elsewhere and events as well, and takes more than three times as long to compile. The only
// user is ROOT_ACCESS_KEY with ROOT_SECRET_KEY.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
)

// What versitygw's command takes without options.
const (
	region            = "us-east-1"
	connectionsMax    = 250_000
	requestsMax       = 100_000
	partsMax          = 10_000
	actionsMax        = 5_000
	bufferBytes       = 1 << 20
	copiedBytesMax    = 5 << 30
	folderPermissions = 0o755
	objectPermissions = 0o644
)

const usage = "usage: versitygw --port ADDRESS [--quiet] posix FOLDER"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

// run serves until a signal or an error ends it.
func run(words []string) error {
	options := []s3api.Option{
		s3api.WithConcurrencyLimiter(connectionsMax, requestsMax),
		s3api.WithMpMaxParts(partsMax),
		s3api.WithAdminServer(),
	}
	var ports []string
	for len(words) > 0 && words[0] != "posix" {
		switch {
		case words[0] == "--port" && len(words) > 1:
			ports = append(ports, words[1])
			words = words[1:]
		case words[0] == "--quiet":
			options = append(options, s3api.WithQuiet())
		default:
			return errors.New(usage)
		}
		words = words[1:]
	}
	if len(ports) == 0 || len(words) != 2 {
		return errors.New(usage)
	}
	user := auth.Account{
		Access: os.Getenv("ROOT_ACCESS_KEY"),
		Secret: os.Getenv("ROOT_SECRET_KEY"),
		Role:   auth.RoleAdmin,
	}
	if user.Access == "" || user.Secret == "" {
		return errors.New("ROOT_ACCESS_KEY or ROOT_SECRET_KEY is not set")
	}
	store, err := open(words[1])
	if err != nil {
		return err
	}
	defer store.Shutdown()
	utils.SetBucketNameValidationStrict(true)
	// Neither logs nor events nor metrics.
	server, err := s3api.New(store, middlewares.RootUserConfig{Access: user.Access, Secret: user.Secret}, region,
		auth.NewIAMServiceSingle(user), nil, nil, nil, nil, options...)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeMultiPort(ports) }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err := <-ended:
		return err
	case <-signals:
		return server.ShutDown()
	}
}

// open takes the folders below a folder as buckets. What there is to know of an object is in the extended
// attributes of its file.
func open(folder string) (*posix.Posix, error) {
	attributes := meta.XattrMeta{}
	if err := attributes.Test(folder); err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	options := posix.PosixOpts{
		Concurrency:         actionsMax,
		IOBufferSize:        bufferBytes,
		CopyObjectThreshold: copiedBytesMax,
	}
	options.SetNewDirPerm(folderPermissions)
	options.SetNewFilePerm(objectPermissions)
	return posix.New(folder, attributes, options)
}
