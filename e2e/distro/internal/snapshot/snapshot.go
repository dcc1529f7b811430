// Package snapshot keeps snapshots of etcd in a folder, under the names that k3s gives them, and restores them. It knows nothing of
// running servers and of the Kubernetes API; ETCDSnapshotFile objects are only described here.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Compressed is how the name of a compressed snapshot ends.
const Compressed = ".zip"

// File is a snapshot. Path is where it is on this node; Location, Node and S3 are of one in a bucket.
type File struct {
	Name, Path string
	// S3 is the bucket, Location the URL in it, and Node the name of the node that took the snapshot, if the bucket has kept that.
	S3             *ObjectS3
	Location, Node string
	// Size is that of the file in bytes.
	Size int64
	// Created is the time in the name, or that of the file if the name holds none.
	Created time.Time
	// Metadata is what the snapshot was given to keep beside it.
	Metadata map[string]string
	// TokenHash names the token that the snapshot can be restored with; it is empty if nobody knows.
	TokenHash string
	// Fault is why the snapshot could not be taken, or not be copied to the bucket; then there is no file.
	Fault string
}

// Folder keeps snapshots.
type Folder struct {
	Path string
	// Own folders are made when they are missing; those that a user has named must be there.
	Own bool
}

// Ensure makes the folder if it is the fixture's own, and refuses one that is missing otherwise.
func (f Folder) Ensure() error {
	if f.Own {
		return os.MkdirAll(f.Path, 0o700)
	}
	info, err := os.Stat(f.Path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", f.Path)
	}
	if err != nil {
		return fmt.Errorf("etcd-snapshot-dir: %w", err)
	}
	return nil
}

// MetadataFile is where the metadata of a snapshot is: k3s keeps it outside of the folder.
func (f Folder) MetadataFile(name string) string {
	return filepath.Join(filepath.Dir(f.Path), ".metadata", name)
}

// Request is one snapshot to take.
type Request struct {
	// Name and Node are the beginning of the file's name.
	Name, Node string
	At         time.Time
	Compress   bool
	Metadata   map[string]string
}

// Save takes a snapshot of the member that c is connected to. The file appears under its name when it is whole and on disk. The File is
// also returned with an error, and then says what went wrong.
func (f Folder) Save(ctx context.Context, c *clientv3.Client, r Request) (File, error) {
	out := File{Name: fmt.Sprintf("%s-%s-%d", r.Name, r.Node, r.At.Unix()), Created: time.Unix(r.At.Unix(), 0), Metadata: r.Metadata}
	err := f.save(ctx, c, r, &out)
	if err != nil {
		out.Fault, out.Path = err.Error(), ""
	}
	return out, err
}

func (f Folder) save(ctx context.Context, c *clientv3.Client, r Request, out *File) error {
	if r.Name == "" || filepath.Base(r.Name) != r.Name || strings.HasPrefix(r.Name, ".") {
		return fmt.Errorf("%q cannot begin the name of a snapshot", r.Name)
	}
	if err := f.Ensure(); err != nil {
		return err
	}
	part := filepath.Join(f.Path, "."+out.Name+".part")
	defer os.Remove(part)
	if err := fetch(ctx, c, part); err != nil {
		return err
	}
	if r.Compress {
		zipped := part + Compressed
		defer os.Remove(zipped)
		if err := compress(part, zipped, out.Name, r.At); err != nil {
			return fmt.Errorf("compressing the snapshot: %w", err)
		}
		out.Name, part = out.Name+Compressed, zipped
	}
	out.Path = filepath.Join(f.Path, out.Name)
	if err := f.writeMetadata(out.Name, r.Metadata); err != nil {
		return err
	}
	if err := os.Rename(part, out.Path); err != nil {
		return fmt.Errorf("saving the snapshot: %w", err)
	}
	info, err := os.Stat(out.Path)
	if err != nil {
		return err
	}
	out.Size = info.Size()
	return syncDir(f.Path)
}

// fetch writes etcd's stream to a file, syncs it and compares its checksum.
func fetch(ctx context.Context, c *clientv3.Client, file string) error {
	stream, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return fmt.Errorf("asking etcd for a snapshot: %w", err)
	}
	defer stream.Snapshot.Close()
	if err := writeSynced(file, func(w io.Writer) error { _, err := io.Copy(w, stream.Snapshot); return err }); err != nil {
		return fmt.Errorf("fetching the snapshot: %w", err)
	}
	return Verify(file)
}

// writeSynced writes a file that only root reads, and returns once it is on disk.
func writeSynced(file string, write func(io.Writer) error) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = write(to); err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ErrCorrupt is in the error for a file that is no whole snapshot.
var ErrCorrupt = errors.New("not a whole snapshot of etcd")

// Verify compares the checksum at the end of a snapshot, which is not compressed, with its content.
func Verify(file string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	// A database is made of whole pages, and etcd adds a checksum to what it sends.
	if info.Size()%512 != sha256.Size || info.Size() < 512 {
		return fmt.Errorf("%w: %s has %d bytes, with no checksum at its end", ErrCorrupt, file, info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, from, info.Size()-sha256.Size); err != nil {
		return err
	}
	end, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if !slices.Equal(end, sum.Sum(nil)) {
		return fmt.Errorf("%w: %s does not have the checksum that it ends with", ErrCorrupt, file)
	}
	return nil
}

func (f Folder) writeMetadata(name string, metadata map[string]string) error {
	if len(metadata) == 0 {
		return nil
	}
	raw, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	file := f.MetadataFile(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return writeSynced(file, func(w io.Writer) error { _, err := w.Write(raw); return err })
}

// List returns the snapshots of the folder, the newest first.
func (f Folder) List() ([]File, error) {
	entries, err := os.ReadDir(f.Path)
	if errors.Is(err, fs.ErrNotExist) && f.Own {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var out []File
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		s := File{Name: e.Name(), Path: filepath.Join(f.Path, e.Name()), Size: info.Size(), Created: Created(e.Name(), info.ModTime())}
		if raw, err := os.ReadFile(f.MetadataFile(e.Name())); err == nil {
			_ = json.Unmarshal(raw, &s.Metadata) // what somebody has put there instead is not shown
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b File) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// Created reads the time from the end of a snapshot's name.
func Created(name string, fallback time.Time) time.Time {
	name = strings.TrimSuffix(name, Compressed)
	if n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64); err == nil {
		return time.Unix(n, 0)
	}
	return fallback.Truncate(time.Second)
}

// Delete removes snapshots and returns the names of those that were there.
func (f Folder) Delete(names ...string) ([]string, error) {
	var gone []string
	for _, name := range names {
		if filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			return gone, fmt.Errorf("%q is not the name of a snapshot", name)
		}
		err := os.Remove(filepath.Join(f.Path, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.Remove(f.MetadataFile(name))
			gone = append(gone, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return gone, fmt.Errorf("deleting snapshot %s: %w", name, err)
		}
	}
	return gone, nil
}

// Prune removes the oldest snapshots whose names begin with prefix, until at most keep are left. Less than one keeps all.
func (f Folder) Prune(prefix string, keep int) ([]string, error) {
	if keep < 1 {
		return nil, nil
	}
	all, err := f.List()
	if err != nil {
		return nil, err
	}
	var old []string
	for _, s := range all {
		if !strings.HasPrefix(s.Name, prefix) {
			continue
		}
		if keep--; keep < 0 {
			old = append(old, s.Name)
		}
	}
	return f.Delete(old...)
}
