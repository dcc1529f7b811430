package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// metadataFolder is beside the snapshots.
const metadataFolder = ".metadata"

// What an object keeps of where its snapshot comes from, in the form of a header's name.
var (
	clusterHeader = textproto.CanonicalMIMEHeaderKey(flavour.Name("*-cluster-id"))
	nodeHeader    = textproto.CanonicalMIMEHeaderKey(flavour.Name("*-node-name"))
	tokenHeader   = textproto.CanonicalMIMEHeaderKey(flavour.Name("*-token-hash"))
)

// Origin is where a snapshot comes from: the UID of the cluster's namespace kube-system, the node, and the hash of the token.
type Origin struct{ Cluster, Node, TokenHash string }

// Upload copies a snapshot. The copy is also returned with an error, and then says what went wrong.
func (b *Bucket) Upload(ctx context.Context, f snapshot.File, o Origin) (snapshot.File, error) {
	out := b.describe(f.Name)
	out.Created, out.Metadata, out.Node = f.Created, f.Metadata, o.Node
	kind := "application/octet-stream"
	if strings.HasSuffix(f.Name, snapshot.Compressed) {
		kind = "application/zip"
	}
	size, err := b.put(ctx, b.key(f.Name), f.Path, kind, o)
	if err != nil {
		out.Fault = err.Error()
		return out, fmt.Errorf("uploading %s: %w", out.Location, err)
	}
	out.Size, out.TokenHash = size, o.TokenHash
	return out, nil
}

// UploadMetadata copies the metadata of a snapshot in a folder, if it has some.
func (b *Bucket) UploadMetadata(ctx context.Context, from snapshot.Folder, name string, o Origin) error {
	file := from.MetadataFile(name)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := b.put(ctx, b.metadataKey(name), file, "application/json", o)
	return err
}

func (b *Bucket) put(ctx context.Context, key, file, kind string, o Origin) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout.Duration)
	defer cancel()
	info, err := b.client.FPutObject(ctx, b.Bucket, key, file, minio.PutObjectOptions{ContentType: kind, NumThreads: 2,
		UserMetadata: map[string]string{clusterHeader: o.Cluster, nodeHeader: o.Node, tokenHeader: o.TokenHash}})
	return info.Size, err
}

// Download copies a snapshot and its metadata into a folder and returns the file.
func (b *Bucket) Download(ctx context.Context, name string, into snapshot.Folder) (string, error) {
	if name == "" || filepath.Base(name) != name {
		return "", fmt.Errorf("%q is not the name of a snapshot", name)
	}
	if err := into.Ensure(); err != nil {
		return "", err
	}
	file := filepath.Join(into.Path, name)
	if err := b.get(ctx, b.key(name), file); err != nil {
		return "", fmt.Errorf("downloading %s: %w", b.describe(name).Location, err)
	}
	if err := b.get(ctx, b.metadataKey(name), into.MetadataFile(name)); err != nil && !notFound(err) {
		return "", fmt.Errorf("downloading the metadata of %s: %w", b.describe(name).Location, err)
	}
	return file, nil
}

func (b *Bucket) get(ctx context.Context, key, file string) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout.Duration)
	defer cancel()
	if err := b.client.FGetObject(ctx, b.Bucket, key, file, minio.GetObjectOptions{}); err != nil {
		return err
	}
	return os.Chmod(file, 0o600)
}
