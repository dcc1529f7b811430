package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// freshFor is how long before its end a kept token is no longer given out.
const freshFor = time.Minute

// tokenCache keeps one token in a file that only the user can read.
type tokenCache struct{ path string }

// newTokenCache names the file by all that a token depends on, among it the credential that it was got with: whoever changes that gets no
// token of somebody else.
func newTokenCache(parts ...string) tokenCache {
	dir, err := os.UserCacheDir()
	if err != nil {
		return tokenCache{}
	}
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return tokenCache{filepath.Join(dir, "drover", "tokens", hex.EncodeToString(sum.Sum(nil))+".json")}
}

// read returns the kept token, or nil where there is none that is good for a while.
func (c tokenCache) read(now time.Time) *issuedToken {
	info, err := os.Lstat(c.path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil
	}
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return nil
	}
	token := &issuedToken{}
	if err := json.Unmarshal(raw, token); err != nil || token.Token == "" || now.Add(freshFor).After(token.ExpiresAt) {
		return nil
	}
	return token
}

// write keeps a token, and removes those that have ended.
func (c tokenCache) write(token *issuedToken) error {
	if c.path == "" {
		return nil
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	raw, err := json.Marshal(token)
	if err != nil {
		return fmt.Errorf("encoding a token: %w", err)
	}
	if err := writePrivate(c.path, raw); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading %s: %w", dir, err)
	}
	for _, entry := range entries {
		// No token that is kept here lives for longer than an hour.
		info, err := entry.Info()
		if err == nil && strings.HasSuffix(entry.Name(), ".json") && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	return nil
}

// writePrivate writes a file that nobody but its owner can read, whole or not at all.
func writePrivate(path string, content []byte) error {
	if err := checkRegular(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	keepOwner(file, path)
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// checkRegular returns an error if something else than a regular file has this name: to write it replaces what is there, and root could
// replace /dev/null and /dev/stdout.
func checkRegular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("writing %s: it is not a regular file", path)
	}
	return nil
}

// keepOwner gives a file the owner of the one that it replaces, so that root does not take a user's kubeconfig away. In a directory of
// somebody else, such as /tmp, anyone may have put that file there, so that the new one stays with who writes it.
func keepOwner(file *os.File, path string) {
	existing, directory := statOf(path), statOf(filepath.Dir(path))
	if existing != nil && directory != nil && existing.Uid == directory.Uid {
		_ = file.Chown(int(existing.Uid), int(existing.Gid)) // only root can, and only root has to
	}
}

func statOf(path string) *syscall.Stat_t {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat
}
