// Package payload is how the program k3s carries the programs it consists of: a compressed archive behind its own code.
//
// The last 48 bytes of the file are the SHA-256 of the archive, its length (big-endian) and a magic word.
package payload

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const magic = "k3sfixt1"

const trailerSize = sha256.Size + 8 + len(magic)

// ErrNone is the answer for a file without an archive.
var ErrNone = errors.New("this program carries no archive: it was not made by build.sh")

// Append writes the files, all into one folder, behind what is in out already.
func Append(out io.Writer, files []string) error {
	sum := sha256.New()
	count := &counter{}
	z, err := zstd.NewWriter(io.MultiWriter(out, sum, count), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, file := range files {
		if err := add(t, file); err != nil {
			return fmt.Errorf("packing %s: %w", file, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return err
	}
	trailer := binary.BigEndian.AppendUint64(sum.Sum(nil), uint64(count.n))
	_, err = out.Write(append(trailer, magic...))
	return err
}

func add(t *tar.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: filepath.Base(file), Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

// Archive is the archive in a program.
type Archive struct {
	// Hash is the SHA-256 of the archive in hexadecimal digits.
	Hash string

	file   *os.File
	offset int64
	length int64
}

// Open finds the archive in a program.
func Open(file string) (*Archive, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	raw := make([]byte, trailerSize)
	end := info.Size() - int64(trailerSize)
	if _, err := f.ReadAt(raw, max(end, 0)); err != nil || end < 0 || string(raw[sha256.Size+8:]) != magic {
		return nil, errors.Join(ErrNone, f.Close())
	}
	length := int64(binary.BigEndian.Uint64(raw[sha256.Size:]))
	if length < 0 || length > end {
		return nil, errors.Join(ErrNone, f.Close())
	}
	return &Archive{Hash: hex.EncodeToString(raw[:sha256.Size]), file: f, offset: end - length, length: length}, nil
}

// Close ends the use of the archive.
func (a *Archive) Close() error { return a.file.Close() }

// Unpack writes the files into a folder and fails if the archive is damaged.
func (a *Archive) Unpack(dir string) error {
	sum := sha256.New()
	in := io.TeeReader(io.NewSectionReader(a.file, a.offset, a.length), sum)
	z, err := zstd.NewReader(in)
	if err != nil {
		return err
	}
	defer z.Close()
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("unpacking: %w", err)
		}
		if h.Name == "" || strings.ContainsAny(h.Name, `/\`) || h.Name == ".." {
			return fmt.Errorf("unpacking: %q is no plain file name", h.Name)
		}
		if err := extract(filepath.Join(dir, h.Name), t); err != nil {
			return fmt.Errorf("unpacking %s: %w", h.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != a.Hash {
		return errors.New("unpacking: the archive in this program is damaged")
	}
	return nil
}

func extract(file string, r io.Reader) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}
