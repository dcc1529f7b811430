package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

// region is what clients have to sign their requests for; it is S3's default.
const region = "us-east-1"

type options struct {
	dir, listen string
	buckets     []string
	plain, quit bool
}

// serve runs the server until ctx ends. What it makes in the folder stays, so that it can be stopped and started again: objects/<bucket>/,
// ca.crt, access-key and secret-key are for others to read.
func serve(ctx context.Context, o options) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	// Attributes of objects have files of their own, as not every file system of a test machine takes extended attributes.
	for _, folder := range []string{in("objects"), in("attributes")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	for _, bucket := range o.buckets {
		if err := os.MkdirAll(in("objects", bucket), 0o700); err != nil {
			return err
		}
	}
	access, err := readOrMake(in("access-key"), func() string { return rand.Text()[:20] })
	if err != nil {
		return err
	}
	secret, err := readOrMake(in("secret-key"), func() string { return (rand.Text() + rand.Text())[:40] })
	if err != nil {
		return err
	}
	if o.listen, err = withPort(o.listen); err != nil {
		return err
	}
	url := "http://" + o.listen
	conf := &embedgw.Config{
		RootUserAccess: access, RootUserSecret: secret, Region: region, Ports: []string{o.listen}, Quiet: true, KeepAlive: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000, HealthPath: "/healthz",
	}
	if !o.plain {
		url = "https://" + o.listen
		host, _, err := net.SplitHostPort(o.listen)
		if err != nil {
			return err
		}
		if err := issue(dir, host); err != nil {
			return fmt.Errorf("issuing a certificate: %w", err)
		}
		conf.CertFile, conf.KeyFile = in("tls.crt"), in("tls.key")
	}
	conf.S3Options = []s3api.Option{s3api.WithOnListen(func() { fmt.Printf("Serves %s at %s\n", dir, url) })}
	attributes, err := meta.NewSideCar(in("attributes"))
	if err != nil {
		return err
	}
	objects, err := posix.New(in("objects"), attributes, posix.PosixOpts{SideCarDir: in("attributes"), NewDirPerm: 0o700})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, objects, conf)
}

// readOrMake returns what a file holds, which is made at the first start.
func readOrMake(file string, create func() string) (string, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		raw = []byte(create())
		err = os.WriteFile(file, raw, 0o600)
	}
	return strings.TrimSpace(string(raw)), err
}

// withPort replaces port 0 by one that is free: the server does not tell which one it was given.
func withPort(address string) (string, error) {
	if _, port, err := net.SplitHostPort(address); err != nil || port != "0" {
		return address, err
	}
	free, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	return free.Addr().String(), free.Close()
}
