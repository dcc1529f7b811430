package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/packaging/images"
)

// newSBOM lists what is in the archives of a release.
func newSBOM() *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:   "sbom FILE...",
		Short: "List what is in archives of programs",
		Long: `Writes a software bill of materials (SPDX 2.3) of each FILE to FILE.spdx.json. The name of FILE is
NAME-VERSION-linux-ARCH.tar.gz. The time of the documents is SOURCE_DATE_EPOCH.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, file := range args {
				if err := writeSBOM(file, version, os.Getenv("SOURCE_DATE_EPOCH"), cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "version of the release")
	_ = cmd.MarkFlagRequired("version")
	return cmd
}

func writeSBOM(file, version, epoch string, stdout io.Writer) error {
	created, err := creationTime(epoch)
	if err != nil {
		return err
	}
	name, arch, found := strings.Cut(filepath.Base(file), "-"+version+"-linux-")
	arch, compressed := strings.CutSuffix(arch, ".tar.gz")
	if !found || !compressed {
		return fmt.Errorf("%s: the name must be NAME-%s-linux-ARCH.tar.gz", file, version)
	}
	raw, err := images.ArchiveDocument(file, name, version, arch, created)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".spdx.json", raw, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, file+".spdx.json")
	return err
}
