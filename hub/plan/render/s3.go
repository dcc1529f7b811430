package render

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// addS3 has snapshots of etcd copied to a bucket. What the specification leaves open comes from the credential.
func (b *builder) addS3(s3 *rkev1.ETCDSnapshotS3) {
	const field = "spec.rkeConfig.etcd.s3"
	if !UsesBucket(s3) {
		return
	}
	credential := b.s3Credential(field+".cloudCredentialName", s3.CloudCredentialName)
	bucket := cmp.Or(s3.Bucket, credential["defaultBucket"])
	if bucket == "" {
		b.problems.fail(field+".bucket", "is empty, and the cloud credential names no defaultBucket; name the bucket that snapshots go to")
	}
	endpoint := cmp.Or(s3.Endpoint, credential["defaultEndpoint"])
	if strings.Contains(endpoint, "://") {
		b.problems.fail(field+".endpoint", "is a URL; it takes a host, with a port where it needs one, such as s3.example.com:9000")
	}
	if ip, err := netip.ParseAddr(endpoint); err == nil && ip.Is6() {
		b.problems.doubt(field+".endpoint", "is an IPv6 address without brackets, with which nothing is copied to the bucket; "+
			"write it in brackets, such as [2001:db8::1]:9000")
	}
	b.args["etcd-s3"] = true
	for name, value := range map[string]string{
		"bucket": bucket, "access-key": credential["accessKey"], "secret-key": credential["secretKey"], "endpoint": endpoint,
		"region": cmp.Or(s3.Region, credential["defaultRegion"]), "folder": cmp.Or(s3.Folder, credential["defaultFolder"]),
		"endpoint-ca": b.s3CA(cmp.Or(s3.EndpointCA, credential["defaultEndpointCA"])),
	} {
		if value != "" {
			b.args["etcd-s3-"+name] = value
		}
	}
	if s3.SkipSSLVerify || credential["defaultSkipSSLVerify"] == "true" {
		b.args["etcd-s3-skip-ssl-verify"] = true
	}
	b.checkRetention(field+".retention", s3.Retention)
	if s3.Retention > 0 {
		if _, known := b.Cluster.Release.Arg("etcd-s3-retention", true); known {
			b.args["etcd-s3-retention"] = int64(s3.Retention)
		} else {
			b.problems.warn(field+".retention", "is no argument of %s %s and was left out: as many are kept in the bucket as on the machine",
				b.Cluster.Release.Runtime, b.Cluster.Release.Version)
		}
	}
	b.checkS3Retention(field + ".retention")
}

// checkRetention warns of a negative number of snapshots, which does not keep all of them.
func (b *builder) checkRetention(field string, n int) {
	if n < 0 {
		b.problems.warn(field, "is %d and was left out: it must be at least 1, or unset for the default of %s", n, b.Cluster.Release.Runtime)
	}
}

// defaultRetention is how many snapshots k3s and RKE2 keep where nothing else is configured.
const defaultRetention = 5

// checkS3Retention warns where the release keeps fewer snapshots in the bucket than on each machine: the first ones with a retention of
// its own do not go by that of the machines, and delete the others.
func (b *builder) checkS3Retention(field string) {
	wanted, err := strconv.Atoi(fmt.Sprint(b.args["etcd-snapshot-retention"]))
	_, own := b.args["etcd-s3-retention"]
	_, known := b.Cluster.Release.Arg("etcd-s3-retention", true)
	if err != nil || wanted <= defaultRetention || own || !known || b.Cluster.Release.Has(release.S3RetentionDefault) ||
		b.args["etcd-disable-snapshots"] == true {
		return
	}
	b.problems.doubt(field, "is not set, and %s %s keeps %d snapshots in the bucket then, of all machines together, although each machine "+
		"keeps %d of its own (https://github.com/k3s-io/k3s/issues/13769); set it", b.Cluster.Release.Runtime, b.Cluster.Release.Version,
		defaultRetention, wanted)
}

// UsesBucket reports whether snapshots are to be copied to a bucket. An object without any of these fields asks for nothing.
func UsesBucket(s3 *rkev1.ETCDSnapshotS3) bool {
	return s3 != nil && (s3.Bucket != "" || s3.Endpoint != "" || s3.Folder != "" || s3.CloudCredentialName != "" || s3.Region != "")
}

// s3Credential reads a cloud credential. Its keys may have the name of the kind of credential in front, with a dash.
func (b *builder) s3Credential(field, name string) map[string]string {
	if name == "" {
		return nil
	}
	ref := parseRef(KindSecret, name)
	secret, ok := b.refer(references.S3Credential, field, ref)
	if !ok {
		return nil
	}
	out := credentialFields(secret.Data)
	if (out["accessKey"] == "") != (out["secretKey"] == "") {
		b.problems.fail(field, "Secret %q needs both of the keys accessKey and secretKey, or neither", ref.Name)
	}
	return out
}

// credentialFields are the values of a cloud credential by field. Of several keys of one field the last in order counts, so that the result
// does not depend on a map's order.
func credentialFields(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		out[key[strings.LastIndex(key, "-")+1:]] = string(data[key])
	}
	return out
}

// s3CA writes the authority of the bucket's endpoint to a file and returns its path. It may be given as PEM, as that in base64, or as the
// path of a file that is there.
func (b *builder) s3CA(ca string) string {
	if ca == "" || strings.HasPrefix(ca, "/") {
		return ca
	}
	content := []byte(ca)
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(ca)); err == nil {
		content = decoded
	}
	path := b.dataDir + "/etc/config-files/s3-endpoint-ca.crt"
	b.add(plans.File{Path: path}, content)
	return path
}
