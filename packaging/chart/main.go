// Command chart writes the Helm chart of the hub as an archive, as helm package does: the same files, version and time give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm mentions each symbolic link
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "chart:", err)
		}
		os.Exit(1)
	}
}

// run parses the command line and prints the path of the archive.
func run(args []string) error {
	flags := flag.NewFlagSet("chart", flag.ContinueOnError)
	version := flags.String("version", "", "version of the release, such as v1.2.3")
	appVersion := flags.String("app-version", "", "version of the hub, whose image has it as its tag (default: that of -version)")
	source := flags.String("source", "drover", "directory of the chart")
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
	loaded, err := load(*source, *version, time.Unix(seconds, 0).UTC())
	if err != nil {
		return err
	}
	if *appVersion != "" {
		loaded.Metadata.AppVersion = *appVersion
	}
	path, err := util.Save(loaded, *out)
	if err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	fmt.Println(path)
	return nil
}

// load returns the chart in a directory with the version of a release and the time of all of its files.
func load(dir, version string, at time.Time) (*chart.Chart, error) {
	if !strings.HasPrefix(version, "v") {
		return nil, fmt.Errorf("-version: must be the version of a release such as v1.2.3, got %q", version)
	}
	out, err := loader.LoadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the chart in %s: %w", dir, err)
	}
	out.Metadata.Version, out.Metadata.AppVersion = strings.TrimPrefix(version, "v"), version
	out.ModTime, out.SchemaModTime = at, at
	for _, files := range [][]*common.File{out.Raw, out.Templates, out.Files} {
		for _, file := range files {
			file.ModTime = at
		}
	}
	return out, nil
}
