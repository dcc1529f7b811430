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

// maxFileBytes bounds a file that is read whole; a kubeconfig with certificates is a few kilobytes.
const maxFileBytes = 1 << 20

// decodeFile reads a file of secrets into an object: JSON where the base name holds ".json", else YAML where it holds ".yaml" or
// ".yml". (The install script validates rancher2_connection_info.json.tmp, so the ending alone does not do.)
func decodeFile(path string, into any) error {
	raw, err := readPrivate(path)
	if err != nil {
		return err
	}
	return decode(path, raw, into)
}

// decode decodes the content of a file by the file's name.
func decode(path string, raw []byte, into any) error {
	base := filepath.Base(path)
	var err error
	switch {
	case strings.Contains(base, ".json"):
		// One value; what follows it is left alone.
		err = json.NewDecoder(bytes.NewReader(raw)).Decode(into)
	case strings.Contains(base, ".yaml"), strings.Contains(base, ".yml"):
		err = yaml.Unmarshal(raw, into)
	default:
		return fmt.Errorf("%s: the name has none of .json, .yaml and .yml", path)
	}
	if err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// ReadSecret reads a file under the rules of Load; the name does not matter.
func ReadSecret(path string) ([]byte, error) {
	return readPrivate(path)
}

// readPrivate reads a file that must be the process's own and of mode 0600 exactly. The open file is checked, so that it cannot be
// exchanged between check and read.
func readPrivate(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("no file is named")
	}
	// Without O_NONBLOCK a named pipe in the file's place would keep the agent waiting for a writer.
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
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		return nil, fmt.Errorf("%s has mode %04o and must have 0600", path, mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (int(stat.Uid) != os.Getuid() || int(stat.Gid) != os.Getgid()) {
		return nil, fmt.Errorf("%s belongs to %d:%d and must belong to %d:%d", path, stat.Uid, stat.Gid, os.Getuid(), os.Getgid())
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return raw, nil
}
