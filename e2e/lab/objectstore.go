package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	objectStorePort   = 9000
	objectStoreProc   = "objectstore"
	objectStoreBucket = "snapshots"
)

// ObjectStore is the S3 server of a lab, e2e/objectstore, as machines reach it: over TLS, with an authority of its own, and an access key.
type ObjectStore struct {
	// Endpoint is host:port. Region is that of the bucket.
	Endpoint, Region, Bucket, AccessKey, SecretKey string
	// CA is the authority's certificate, PEM.
	CA string
	// Dir is the folder that has the bucket's objects, for whoever has to see or to break them.
	Dir string
}

// StartObjectStore starts the lab's S3 server, unless it runs, and waits until it answers. What is in the bucket stays when it is stopped.
func (l *Lab) StartObjectStore(ctx context.Context) (ObjectStore, error) {
	dir := filepath.Join(l.Dir, objectStoreProc)
	s := ObjectStore{Endpoint: fmt.Sprintf("%s:%d", l.HubIP(), objectStorePort), Region: "us-east-1", Bucket: objectStoreBucket,
		Dir: filepath.Join(dir, "objects", objectStoreBucket)}
	if !l.Running(objectStoreProc) {
		if _, err := os.Stat(l.bin("objectstore")); err != nil {
			return s, fmt.Errorf("bin/objectstore is not there: run make bin/objectstore first")
		}
		if err := l.PortFree(objectStorePort); err != nil {
			return s, err
		}
		err := l.Start(objectStoreProc, nil, l.bin("objectstore"), "--dir", dir, "--listen", s.Endpoint, "--buckets", s.Bucket)
		if err != nil {
			return s, err
		}
	}
	if err := l.answers(ctx, objectStoreProc, "https://"+s.Endpoint+"/healthz"); err != nil {
		return s, err
	}
	for name, into := range map[string]*string{"access-key": &s.AccessKey, "secret-key": &s.SecretKey, "ca.crt": &s.CA} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return s, err
		}
		*into = strings.TrimSpace(string(raw))
	}
	return s, nil
}

// StopObjectStore ends the S3 server, as when its machine is down.
func (l *Lab) StopObjectStore() error { return l.Stop(objectStoreProc, time.Minute) }
