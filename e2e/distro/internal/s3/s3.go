// Package s3 copies snapshots of etcd to a bucket and back, under the names and with the metadata that k3s gives them. It knows nothing of
// running servers and of the Kubernetes API.
package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// retries is how often a request is sent at most. The client would try ten times, for half a minute.
const retries = 3

// Bucket is a bucket that was there when it was opened.
type Bucket struct {
	config.S3
	client *minio.Client
}

// Open connects to a bucket and makes sure that it is there and takes the key. No request has been made if the settings are not whole.
func Open(ctx context.Context, c config.S3) (*Bucket, error) {
	if c.Bucket == "" {
		return nil, errors.New("s3 bucket name was not set")
	}
	transport, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	// Those of the machine that runs the node, from the metadata of its cloud, are not asked for.
	keys := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.Static{Value: credentials.Value{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken,
			SignerType: credentials.SignatureV4}},
		&credentials.FileAWSCredentials{},
	})
	client, err := minio.New(c.Endpoint, &minio.Options{Creds: keys, Secure: !c.Insecure, Region: c.Region, Transport: transport,
		BucketLookup: lookup(c), MaxRetries: retries})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout.Duration)
	defer cancel()
	exists, err := client.BucketExists(ctx, c.Bucket)
	if err != nil {
		return nil, fmt.Errorf("failed to test for existence of bucket %s: %w", c.Bucket, err)
	}
	if !exists {
		return nil, fmt.Errorf("bucket %s does not exist", c.Bucket)
	}
	return &Bucket{S3: c, client: client}, nil
}

func newTransport(c config.S3) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // an object that is compressed stays so
	switch {
	case c.SkipSSLVerify:
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	case c.EndpointCA != "":
		pool, err := authorities(c.EndpointCA)
		if err != nil {
			return nil, fmt.Errorf("etcd-s3-endpoint-ca: %w", err)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	switch c.Proxy {
	case "":
	case "none":
		t.Proxy = nil
	default:
		u, err := url.Parse(c.Proxy)
		if err != nil || u.Scheme == "" || u.Host == "" {
			return nil, errors.New("etcd-s3-proxy: not a URL with scheme and host")
		}
		t.Proxy = http.ProxyURL(u)
	}
	return t, nil
}

// authorities reads certificates from files or from base64.
func authorities(given string) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for part := range strings.FieldsSeq(given) {
		raw, err := base64.StdEncoding.DecodeString(part)
		if err != nil {
			raw, err = os.ReadFile(part)
		}
		if err != nil {
			return nil, err
		}
		found = pool.AppendCertsFromPEM(raw) || found
	}
	if !found {
		return nil, errors.New("no certificates")
	}
	return pool, nil
}

func lookup(c config.S3) minio.BucketLookupType {
	switch strings.ToLower(c.BucketLookup) {
	case "dns":
		return minio.BucketLookupDNS
	case "path":
		return minio.BucketLookupPath
	}
	return minio.BucketLookupAuto
}

// key is where a snapshot is in the bucket, metadataKey where its metadata is.
func (b *Bucket) key(name string) string         { return path.Join(b.Folder, name) }
func (b *Bucket) metadataKey(name string) string { return path.Join(b.Folder, metadataFolder, name) }

// describe is a snapshot of this bucket.
func (b *Bucket) describe(name string) snapshot.File {
	return snapshot.File{Name: name, S3: reference(b.S3), Location: "s3://" + b.Bucket + "/" + b.key(name)}
}

// Failed is the copy of a snapshot that is not in the bucket because the bucket could not be opened.
func Failed(f snapshot.File, c config.S3, why error) snapshot.File {
	return snapshot.File{Name: f.Name, Created: f.Created, Metadata: f.Metadata, S3: reference(c), Fault: why.Error()}
}

// reference is what everybody may know of a bucket.
func reference(c config.S3) *snapshot.ObjectS3 {
	return &snapshot.ObjectS3{Endpoint: c.Endpoint, EndpointCA: c.EndpointCA, SkipSSLVerify: c.SkipSSLVerify, Bucket: c.Bucket,
		Region: c.Region, Prefix: c.Folder, Insecure: c.Insecure}
}

func notFound(err error) bool { return minio.ToErrorResponse(err).StatusCode == http.StatusNotFound }
