package s3

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// maxMetadata bounds the metadata of a snapshot, in bytes.
const maxMetadata = 1 << 20

// List returns the snapshots in the bucket's folder, the newest first.
func (b *Bucket) List(ctx context.Context) ([]snapshot.File, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout.Duration)
	defer cancel()
	objects, err := b.objects(ctx, b.key(""), "")
	if err != nil {
		return nil, err
	}
	described, err := b.objects(ctx, b.metadataKey(""), "")
	if err != nil {
		return nil, err
	}
	var out []snapshot.File
	for _, o := range objects {
		f := b.describe(path.Base(o.Key))
		f.Size, f.Created = o.Size, snapshot.Created(f.Name, o.LastModified)
		if info, err := b.client.StatObject(ctx, b.Bucket, o.Key, minio.StatObjectOptions{}); err == nil {
			f.Node, f.TokenHash = info.UserMetadata[nodeHeader], info.UserMetadata[tokenHeader]
		} else if notFound(err) { // deleted since
			continue
		}
		if slices.ContainsFunc(described, func(o minio.ObjectInfo) bool { return path.Base(o.Key) == f.Name }) {
			f.Metadata = b.metadata(ctx, f.Name)
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b snapshot.File) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// objects lists what is in a folder, but for folders, with a beginning of the name.
func (b *Bucket) objects(ctx context.Context, folder, prefix string) ([]minio.ObjectInfo, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when one of it fails
	defer cancel()
	if folder != "" {
		folder += "/"
	}
	var out []minio.ObjectInfo
	for o := range b.client.ListObjects(ctx, b.Bucket, minio.ListObjectsOptions{Prefix: folder + prefix}) {
		if o.Err != nil {
			return nil, fmt.Errorf("listing s3://%s/%s: %w", b.Bucket, folder, o.Err)
		}
		if o.Size > 0 && !strings.HasSuffix(o.Key, "/") {
			out = append(out, o)
		}
	}
	return out, nil
}

// metadata reads that of a snapshot. What somebody has put there instead is not shown.
func (b *Bucket) metadata(ctx context.Context, name string) (out map[string]string) {
	o, err := b.client.GetObject(ctx, b.Bucket, b.metadataKey(name), minio.GetObjectOptions{})
	if err != nil {
		return nil
	}
	defer o.Close()
	if raw, err := io.ReadAll(io.LimitReader(o, maxMetadata)); err == nil {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

// Delete removes a snapshot and its metadata, and reports whether the snapshot was there.
func (b *Bucket) Delete(ctx context.Context, name string) (bool, error) {
	if name == "" || filepath.Base(name) != name {
		return false, fmt.Errorf("%q is not the name of a snapshot", name)
	}
	ctx, cancel := context.WithTimeout(ctx, b.Timeout.Duration)
	defer cancel()
	was := false
	for _, key := range []string{b.key(name), b.metadataKey(name)} {
		_, err := b.client.StatObject(ctx, b.Bucket, key, minio.StatObjectOptions{})
		if err == nil {
			err = b.client.RemoveObject(ctx, b.Bucket, key, minio.RemoveObjectOptions{})
			was = was || key == b.key(name)
		}
		if err != nil && !notFound(err) {
			return was, fmt.Errorf("deleting s3://%s/%s: %w", b.Bucket, key, err)
		}
	}
	return was, nil
}

// Prune removes the oldest snapshots whose names begin with prefix, of all nodes, until no more than the bucket's retention are left. What
// was uploaded last counts as the newest.
func (b *Bucket) Prune(ctx context.Context, prefix string) ([]string, error) {
	if b.Retention < 1 {
		return nil, nil
	}
	list, cancel := context.WithTimeout(ctx, b.Timeout.Duration)
	defer cancel()
	objects, err := b.objects(list, b.key(""), prefix)
	if err != nil || len(objects) <= b.Retention {
		return nil, err
	}
	slices.SortFunc(objects, func(a, b minio.ObjectInfo) int {
		created := func(o minio.ObjectInfo) int64 { return snapshot.Created(path.Base(o.Key), o.LastModified).Unix() }
		return cmp.Or(b.LastModified.Compare(a.LastModified), cmp.Compare(created(b), created(a)))
	})
	var gone []string
	for _, o := range objects[b.Retention:] {
		was, err := b.Delete(ctx, path.Base(o.Key))
		if was {
			gone = append(gone, path.Base(o.Key))
		}
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}
