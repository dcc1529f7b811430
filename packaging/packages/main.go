// Command packages writes the deb and rpm packages of Drover from the binaries that `make cross` has built.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/packaging/packages/build"
)

func main() {
	if err := run(os.Args[1:], os.Getenv, os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "packages:", strings.ReplaceAll(err.Error(), "\n", "\npackages: "))
		}
		os.Exit(1)
	}
}

// run parses the command line and prints the paths of the packages that it writes.
func run(args []string, env func(string) string, stdout io.Writer) error {
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	var o build.Options
	flags.StringVar(&o.Version, "version", "", "version of the release, such as v1.2.3, or the output of git describe")
	flags.StringVar(&o.Source, "source", ".", "root of the repository")
	flags.StringVar(&o.Bin, "bin", "bin", "directory of the binaries")
	flags.StringVar(&o.Out, "out", "bin/packages", "directory of the packages")
	names := flags.String("package", strings.Join(build.Names, ","), "packages, separated by commas")
	arches := flags.String("arch", strings.Join(build.Arches, ","), "architectures, separated by commas")
	epoch := flags.String("source-date-epoch", env("SOURCE_DATE_EPOCH"),
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
	o.Time = time.Unix(seconds, 0).UTC()
	comma := func(r rune) bool { return r == ',' }
	o.Names, o.Arches = strings.FieldsFunc(*names, comma), strings.FieldsFunc(*arches, comma)
	written, err := build.Packages(o)
	for _, path := range written {
		fmt.Fprintln(stdout, path)
	}
	return err
}
