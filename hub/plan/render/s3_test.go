package render

import (
	"slices"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestCredentialOfSeveralKinds: a Secret with the same field for several kinds of credentials gives the same plan each time. Another one
// would restart all machines with etcd.
func TestCredentialOfSeveralKinds(t *testing.T) {
	data := map[string][]byte{"accessKey": []byte("a"), "amazonec2credentialConfig-accessKey": []byte("b"),
		"s3credentialConfig-accessKey": []byte("c")}
	for range 100 {
		if got := credentialFields(data)["accessKey"]; got != "c" {
			t.Fatalf("got %q", got)
		}
	}
}

// TestNegativeRetention: who wants to keep all snapshots learns that a negative number does not do that.
func TestNegativeRetention(t *testing.T) {
	in := machineOf(t, k3s, "a", "ecwi")
	in.Cluster.Spec.ETCD = &rkev1.ETCD{SnapshotRetention: -1, S3: &rkev1.ETCDSnapshotS3{Bucket: "b", Retention: -7}}
	_, problems := Plan(in)
	for field, want := range map[string]string{"snapshotRetention": "is -1 and was left out", "s3.retention": "is -7 and was left out"} {
		found := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Field == "spec.rkeConfig.etcd."+field && !p.Fatal && strings.HasPrefix(p.Message, want)
		})
		if !found {
			t.Errorf("%s: problems %v", field, problems)
		}
	}
}

// TestS3Retention: a release that came with a retention for S3 deletes all but five snapshots there, whatever each machine keeps. What does
// so is said, and not changed: all servers would restart.
func TestS3Retention(t *testing.T) {
	for name, tc := range map[string]struct {
		version       string
		local, bucket int
		config        string
		warned        bool
	}{
		"of the machines alone":   {version: "v1.34.1+rke2r1", local: 30, warned: true},
		"of the bucket":           {version: "v1.34.1+rke2r1", local: 30, bucket: 90},
		"of the bucket, argument": {version: "v1.34.1+rke2r1", local: 30, config: `{"etcd-s3-retention": 90}`},
		"of arguments":            {version: "v1.33.4+k3s1", config: `{"etcd-snapshot-retention": "30"}`, warned: true},
		"not more than usual":     {version: "v1.34.1+rke2r1", local: 5},
		"the usual":               {version: "v1.34.1+rke2r1"},
		"none on a schedule":      {version: "v1.34.1+rke2r1", local: 30, config: `{"etcd-disable-snapshots": true}`},
		"an earlier release":      {version: "v1.33.3+k3s1", local: 30},
		"the last one":            {version: "v1.35.2+k3s1", local: 30, warned: true},
		"the first one after it":  {version: "v1.35.3+k3s1", local: 30},
		"a later release":         {version: "v1.36.3+k3s1", local: 30},
	} {
		in := machineOf(t, tc.version, "a", "ec")
		in.Cluster.Spec.ETCD = &rkev1.ETCD{SnapshotRetention: tc.local, S3: &rkev1.ETCDSnapshotS3{Bucket: "b", Retention: tc.bucket}}
		if tc.config != "" {
			in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		}
		_, problems := Plan(in)
		warned := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Kept && p.Field == "spec.rkeConfig.etcd.s3.retention" && strings.Contains(p.Message, "each machine keeps 30 ")
		})
		if warned != tc.warned || problems.Err() != nil {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// TestS3EndpointAddress: an IPv6 address needs brackets in an endpoint. One without them is said, and a cluster that has it goes on.
func TestS3EndpointAddress(t *testing.T) {
	for endpoint, doubted := range map[string]bool{
		"2001:db8::1": true, "[2001:db8::1]:9000": false, "[2001:db8::1]": false, "10.0.0.1": false, "10.0.0.1:9000": false,
		"s3.example.com": false,
	} {
		in := machineOf(t, rke2, "a", "ec")
		in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Bucket: "b", Endpoint: endpoint}}
		_, problems := Plan(in)
		found := slices.ContainsFunc(problems, func(p Problem) bool { return p.Kept && p.Field == "spec.rkeConfig.etcd.s3.endpoint" })
		if found != doubted || problems.Err() != nil {
			t.Errorf("%s: %v", endpoint, problems)
		}
	}
}
