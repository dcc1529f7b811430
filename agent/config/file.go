package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds a file; a kubeconfig with certificates has a few kilobytes.
const maxFileBytes = 1 << 20

// decodeFile reads and decodes a file of mode 0600.
func decodeFile(path string, into any) error {
	raw, err := ReadSecret(path)
	if err != nil {
		return err
	}
	return decode(path, raw, into)
}

// decode decodes JSON if the base name of path contains ".json", or YAML if it contains ".yaml" or ".yml". The suffix alone is not enough:
// the install script validates rancher2_connection_info.json.tmp.
func decode(path string, raw []byte, into any) error {
	base := filepath.Base(path)
	var err error
	switch {
	case strings.Contains(base, ".json"):
		// Content after the first value is ignored.
		err = json.NewDecoder(bytes.NewReader(raw)).Decode(into)
	case strings.Contains(base, ".yaml"), strings.Contains(base, ".yml"):
		err = yaml.Unmarshal(raw, into)
	default:
		return fmt.Errorf("%s: the file name must contain .json, .yaml or .yml", path)
	}
	if err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// ReadSecret reads a regular file that must belong to user and group of the process and have mode 0600. The open file is checked, so that
// it cannot be replaced between check and read.
func ReadSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("the path is empty")
	}
	// O_NONBLOCK: opening a named pipe would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		return nil, fmt.Errorf("%s: mode must be 0600, got %04o", path, mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (int(stat.Uid) != os.Getuid() || int(stat.Gid) != os.Getgid()) {
		return nil, fmt.Errorf("%s: owner must be %d:%d, got %d:%d", path, os.Getuid(), os.Getgid(), stat.Uid, stat.Gid)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFileBytes)
	}
	return raw, nil
}
