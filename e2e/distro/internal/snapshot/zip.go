package snapshot

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// compress puts a file, alone and under a name, into an archive.
func compress(from, to, name string, at time.Time) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return writeSynced(to, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		into, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at})
		if err == nil {
			_, err = io.Copy(into, source)
		}
		return errors.Join(err, archive.Close())
	})
}

// decompress takes the one file out of an archive.
func decompress(from, to string) error {
	archive, err := zip.OpenReader(from)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, from, err)
	}
	defer archive.Close()
	if len(archive.File) != 1 {
		return fmt.Errorf("%w: %s holds %d files instead of one", ErrCorrupt, from, len(archive.File))
	}
	source, err := archive.File[0].Open()
	if err != nil {
		return err
	}
	defer source.Close()
	return writeSynced(to, func(w io.Writer) error { _, err := io.Copy(w, source); return err })
}
