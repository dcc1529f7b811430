package config

import (
	"cmp"
	"maps"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S3 is the bucket that snapshots of etcd are copied to. The names in JSON are those that k3s uses between a command and a server.
type S3 struct {
	// Endpoint is a host, with a port where it needs one.
	Endpoint string `json:"endpoint,omitempty"`
	// EndpointCA are files of certificate authorities, or authorities in base64, with spaces between; empty for those of the machine.
	EndpointCA    string `json:"endpointCA,omitempty"`
	SkipSSLVerify bool   `json:"skipSSLVerify,omitempty"`
	// Insecure is plain HTTP.
	Insecure     bool   `json:"insecure,omitempty"`
	AccessKey    string `json:"accessKey,omitempty"`
	SecretKey    string `json:"secretKey,omitempty"`
	SessionToken string `json:"sessionToken,omitempty"`
	Bucket       string `json:"bucket,omitempty"`
	// BucketLookup is dns for the bucket in the host's name, path for the bucket in the path, or empty for what fits the endpoint.
	BucketLookup string `json:"bucketLookup,omitempty"`
	Region       string `json:"region,omitempty"`
	Folder       string `json:"folder,omitempty"`
	// Proxy is a URL, none, or empty for that of the environment.
	Proxy string `json:"proxy,omitempty"`
	// Timeout is for one request.
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// Retention is how many snapshots of a name stay in the bucket; less than one keeps all.
	Retention int `json:"retention,omitempty"`
}

// String leaves the keys out, so that nothing prints them by mistake.
func (s S3) String() string { return "s3://" + path.Join(s.Bucket, s.Folder) + " at " + s.Endpoint }

// s3 is nil unless etcd-s3 is true.
func (v values) s3() *S3 {
	if !v.is("etcd-s3") {
		return nil
	}
	out := &S3{
		Endpoint: v.one("etcd-s3-endpoint", "s3.amazonaws.com"), EndpointCA: v.one("etcd-s3-endpoint-ca", ""),
		SkipSSLVerify: v.is("etcd-s3-skip-ssl-verify"), Insecure: v.is("etcd-s3-insecure"),
		AccessKey: v.one("etcd-s3-access-key", ""), SecretKey: v.one("etcd-s3-secret-key", ""),
		SessionToken: v.one("etcd-s3-session-token", ""), Bucket: v.one("etcd-s3-bucket", ""),
		BucketLookup: v.one("etcd-s3-bucket-lookup-type", ""), Region: v.one("etcd-s3-region", "us-east-1"),
		Folder: v.one("etcd-s3-folder", ""), Proxy: v.one("etcd-s3-proxy", ""),
		Retention: v.number("etcd-s3-retention", v.number("etcd-snapshot-retention", defaultRetention)),
	}
	if out.Timeout.Duration, _ = time.ParseDuration(v.one("etcd-s3-timeout", "")); out.Timeout.Duration <= 0 {
		out.Timeout.Duration = 5 * time.Minute
	}
	return out
}

// CommandS3 is the bucket for a command about snapshots, which k3s does not take from the server that it asks: flags by the names of keys,
// then the node's configuration files, then the environment. It is nil unless etcd-s3 is true. file is empty unless the command line names
// one.
func CommandS3(file string, flags map[string]string, getenv func(string) string) (*S3, error) {
	given, err := readEnvironment(Server, getenv)
	if err != nil {
		return nil, err
	}
	files, err := readFiles(cmp.Or(file, getenv(fileVariable), File), Server)
	if err != nil {
		return nil, err
	}
	maps.Copy(given, files)
	for name, value := range flags {
		given[name] = []string{value}
	}
	return given.s3(), nil
}

// secretKeys hold what nobody else on the machine may read.
var secretKeys = map[string]bool{"token": true, "agent-token": true, "etcd-s3-access-key": true, "etcd-s3-secret-key": true,
	"etcd-s3-session-token": true}

// IsSecret reports whether a flag of a node or a command takes a secret. Its name has dashes before it or not.
func IsSecret(flag string) bool {
	flag = strings.TrimLeft(flag, "-")
	return secretKeys[cmp.Or(shorts[flag], flag)] || secretKeys["etcd-"+flag] || flag == "etcd-token" || flag == "new-token"
}
