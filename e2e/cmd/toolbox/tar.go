package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tarTool knows what "kubectl cp" says: "tar cf - <path>" and "tar -xmf - [-C <folder>]", with options about owners and permissions, which
// mean nothing here.
func tarTool(_ context.Context, args []string, in io.Reader, out io.Writer) error {
	mode, folder, paths := "", ".", []string(nil)
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "cf", arg == "-cf", arg == "xf", arg == "-xf", arg == "-xmf":
			mode = strings.TrimPrefix(arg, "-")[:1]
		case arg == "-C" && i+1 < len(args):
			i++
			folder = args[i]
		case arg == "-", strings.HasPrefix(arg, "--"):
		case strings.HasPrefix(arg, "-"):
			return fmt.Errorf("option %s is not known", arg)
		default:
			paths = append(paths, arg)
		}
	}
	switch {
	case mode == "c" && len(paths) > 0:
		return pack(out, paths)
	case mode == "x":
		return unpack(in, folder)
	}
	return errors.New("only \"cf - <path>\" and \"xf - -C <folder>\" are known")
}

func pack(out io.Writer, paths []string) error {
	archive := tar.NewWriter(out)
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return packOne(archive, path, entry)
		})
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

func packOne(archive *tar.Writer, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(path, "/")
	if err := archive.WriteHeader(header); err != nil || info.IsDir() {
		return err
	}
	return copyFile(path, archive)
}

// unpack puts files and folders below a folder; a name that leads out of it is refused.
func unpack(in io.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackOne(root, header, archive); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

func unpackOne(root *os.Root, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(filepath.Clean(header.Name), 0o755)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	}
	return nil
}
