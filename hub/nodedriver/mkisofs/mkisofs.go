// Package mkisofs is as much of the program mkisofs as node drivers need: the driver vmwarevsphere gives a machine its user data on a CD,
// whose image it has that program write.
package mkisofs

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// Name is that of the program.
const Name = "mkisofs"

// Main runs the program with its arguments, and returns its exit code.
func Main(args []string, stderr io.Writer) int {
	if err := run(args); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", Name, err)
		return 1
	}
	return 0
}

func run(args []string) error {
	flags := flag.NewFlagSet(Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var output, label string
	flags.StringVar(&output, "output", "", "")
	flags.StringVar(&output, "o", "", "")
	flags.StringVar(&label, "V", "CDROM", "")
	// An image has the names of Rock Ridge and of Joliet, and no HFS, which no machine reads.
	for _, name := range []string{"J", "r", "hfs", "graft-points"} {
		flags.Bool(name, true, "")
	}
	flags.Int("iso-level", 1, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if output == "" || flags.NArg() != 1 {
		return errors.New("-output and one directory are required")
	}
	return write(output, label, flags.Arg(0))
}

// write writes an image of a CD with the files of a directory.
func write(output, label, dir string) (err error) {
	image, err := os.OpenFile(output, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	cd, err := iso9660.Create(file.New(image, false), 0, 0, 0, "")
	if err != nil {
		return err
	}
	workspace := cd.Workspace()
	defer func() { err = errors.Join(err, os.RemoveAll(workspace)) }()
	if err := os.CopyFS(workspace, os.DirFS(dir)); err != nil {
		return err
	}
	return cd.Finalize(iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: label})
}
