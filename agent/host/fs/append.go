package fs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// AppendFile implements FileSystem.
func (OS) AppendFile(path string, content []byte) error {
	file, dir, err := openForAppend(path)
	if err != nil {
		return err
	}
	defer dir.close()
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Truncate(before.Size()) // on a full disk half of a line may have been written
		return withHint(err)
	}
	if before.Size() == 0 { // it may be new
		return dir.sync()
	}
	return nil
}

// AppendStream implements FileSystem.
func (OS) AppendStream(path string, content io.Reader) (int64, error) {
	file, dir, err := openForAppend(path)
	if err != nil {
		return 0, err
	}
	defer dir.close()
	defer file.Close()
	written, err := io.Copy(file, content)
	return written, errors.Join(err, file.Sync(), dir.sync())
}

// openForAppend opens a file, or creates it with mode 0600.
func openForAppend(path string) (*os.File, *directory, error) {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return nil, nil, err
	}
	file, err := dir.open(name, unix.O_APPEND|unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err == nil {
		return file, dir, nil
	}
	dir.close()
	if errors.Is(err, unix.ELOOP) {
		return nil, nil, fmt.Errorf("%w: symbolic links are not followed", err)
	}
	return nil, nil, withHint(err)
}
