// Command build writes the archive with which clusterctl installs Drover: the same version and time give the same bytes.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/drover-dev/drover/packaging/clusterctl"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "clusterctl-bundle:", err)
		}
		os.Exit(1)
	}
}

// run parses the command line and prints the path of the archive.
func run(args []string) error {
	flags := flag.NewFlagSet("clusterctl-bundle", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release, such as v1.2.3")
	hubVersion := flags.String("hub-version", "", "version of the hub, whose image has it as its tag (default: that of -version)")
	clusterAPI := flags.String("cluster-api", "", "version of Cluster API that the hub is built with, such as v1.2.3")
	out := flags.String("out", ".", "directory of the archive")
	epoch := flags.String("source-date-epoch", os.Getenv("SOURCE_DATE_EPOCH"),
		"time of the files in seconds since 1970 (default $SOURCE_DATE_EPOCH)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q is unexpected; -help lists the flags", flags.Arg(0))
	}
	seconds, err := strconv.ParseInt(*epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("-source-date-epoch: must be the time of the commit in seconds since 1970 (git log -1 --format=%%ct), got %q", *epoch)
	}
	files, err := clusterctl.Repository(clusterctl.Release{Version: *version, HubVersion: *hubVersion, ClusterAPI: *clusterAPI})
	if err != nil {
		return fmt.Errorf("making the repository: %w", err)
	}
	var archive bytes.Buffer
	if err := clusterctl.WriteArchive(&archive, files, time.Unix(seconds, 0)); err != nil {
		return err
	}
	path := filepath.Join(*out, "drover-clusterctl-"+*version+".tar.gz")
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
