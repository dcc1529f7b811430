package etcdsnapshot

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// snapshotFile is an ETCDSnapshotFile as k3s writes it.
func snapshotFile(name, created string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k3s.cattle.io/v1", "kind": "ETCDSnapshotFile", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"snapshotName": name + ".zip", "nodeName": "server-1", "location": "file:///var/lib/rancher/k3s/server/db/snapshots/" + name,
			"metadata": map[string]any{"provisioning-cluster-spec": "H4sI"},
		},
		"status": map[string]any{"size": "5Mi", "creationTime": created, "readyToUse": true},
	}}
}

func TestParse(t *testing.T) {
	older, newer := snapshotFile("older", "2026-11-01T00:00:00Z"), snapshotFile("newer", "2026-11-02T00:00:00Z")
	invalid, nameless := snapshotFile("invalid", "yesterday"), snapshotFile("nameless", "2026-11-02T00:00:00Z")
	unstructured.RemoveNestedField(nameless.Object, "spec", "snapshotName")
	unfinished := snapshotFile("unfinished", "2026-11-02T00:00:00Z")
	_ = unstructured.SetNestedField(unfinished.Object, "etcd-snapshot-server-1-1793577600.part", "spec", "snapshotName")
	files, ignored := parse([]unstructured.Unstructured{older, invalid, nameless, unfinished, newer})
	if len(files) != 2 || files[0].Metadata.Name != "newer" || files[1].Metadata.Name != "older" || ignored != 3 {
		t.Errorf("got %d files, %d ignored: %+v", len(files), ignored, files)
	}

	var many []unstructured.Unstructured
	for i := range maxFiles + 3 {
		created := time.Unix(int64(i), 0).UTC().Format(time.RFC3339)
		many = append(many, snapshotFile(fmt.Sprintf("file-%d", i), created))
	}
	files, ignored = parse(many)
	if len(files) != maxFiles || ignored != 3 || files[0].Metadata.Name != fmt.Sprintf("file-%d", maxFiles+2) {
		t.Errorf("got %d files, %d ignored, the first is %s", len(files), ignored, files[0].Metadata.Name)
	}
}

// TestHostileFiles: whoever administers a cluster fills neither the hub's etcd nor its time.
func TestHostileFiles(t *testing.T) {
	endless, wide := snapshotFile("endless", "2026-11-01T00:00:00Z"), snapshotFile("wide", "2026-11-01T00:00:00Z")
	_ = unstructured.SetNestedField(endless.Object, "1e-1000000000", "status", "size")
	_ = unstructured.SetNestedField(wide.Object, strings.Repeat("x", maxTexts), "spec", "location")
	if files, ignored := parse([]unstructured.Unstructured{endless, wide}); len(files) != 0 || ignored != 2 {
		t.Errorf("got %d files, %d ignored", len(files), ignored)
	}
	var many []unstructured.Unstructured
	for i := range maxFiles {
		item := snapshotFile(fmt.Sprintf("file-%d", i), time.Unix(int64(i), 0).UTC().Format(time.RFC3339))
		_ = unstructured.SetNestedField(item.Object, strings.Repeat("x", 100<<10), "spec", "metadata", "provisioning-cluster-spec")
		many = append(many, item)
	}
	files, _ := parse(many)
	size := 0
	for i := range files {
		size += len(files[i].Spec.Metadata["provisioning-cluster-spec"])
	}
	if len(files) != maxFiles || size > maxAllMetadata || len(files[0].Spec.Metadata) == 0 {
		t.Errorf("got %d files with %d bytes of metadata, %d entries of the newest", len(files), size, len(files[0].Spec.Metadata))
	}
}

// TestOtherFolders: k3s lists what begins with the name of its folder.
func TestOtherFolders(t *testing.T) {
	for location, folders := range map[string]map[string]bool{ // with those in which it is ignored
		"s3://backups/prod/a":        {"prod": false, "/prod/": false, "pro": true, "": true},
		"s3://backups/prod-2/a":      {"prod": true, "prod-2": false},
		"s3://backups/prod/velero/a": {"prod": true, "prod/velero": false},
		"s3://backups/a":             {"": false, "prod": false},
		"s3://backups//prod/a":       {"/prod": false, "/prod/": false, "//prod": false, "/pro": true, "/": true},
		"s3://backups//prod/b/a":     {"/prod": true, "/prod//b/": false},
		"s3://backups//a":            {"/": false, "/prod": true},
		"":                           {"": false, "prod": false},
	} {
		for prefix, want := range folders {
			item := snapshotFile("a", "2026-11-01T00:00:00Z")
			_ = unstructured.SetNestedField(item.Object, location, "spec", "location")
			_ = unstructured.SetNestedMap(item.Object, map[string]any{"bucket": "backups", "prefix": prefix}, "spec", "s3")
			if files, _ := parse([]unstructured.Unstructured{item}); (len(files) == 0) != want {
				t.Errorf("%q in the folder %q: %d files", location, prefix, len(files))
			}
		}
	}
}

func TestWanted(t *testing.T) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "prod", UID: "c"}}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "prod-m1", UID: "m"}}
	files, _ := parse([]unstructured.Unstructured{snapshotFile("local-daily-server-1-1a2b3c", "2026-11-01T00:00:00Z")})
	got, err := wanted(cluster, machine, &files[0])
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "prod-local-daily-server-1-1a2b3c" || got.Labels[rkev1.ClusterNameLabel] != "prod" ||
		got.Labels[rkev1.MachineNameLabel] != "prod-m1" || got.Spec.ClusterName != "prod" || len(got.OwnerReferences) != 2 ||
		got.OwnerReferences[0].UID != "m" || got.OwnerReferences[1].UID != "c" ||
		got.Annotations[rkev1.SnapshotNameAnnotation] != "local-daily-server-1-1a2b3c" ||
		got.Annotations[rkev1.SnapshotStorageAnnotation] != rkev1.SnapshotStorageLocal {
		t.Errorf("metadata: %+v", got.ObjectMeta)
	}
	file := got.SnapshotFile
	if file.Name != "local-daily-server-1-1a2b3c.zip" || file.Size != 5<<20 || file.Status != "successful" || file.NodeName != "server-1" ||
		file.CreatedAt == nil || file.S3 != nil {
		t.Errorf("file: %+v", file)
	}
	if raw, err := base64.StdEncoding.DecodeString(file.Metadata); err != nil || string(raw) != `{"provisioning-cluster-spec":"H4sI"}` {
		t.Errorf("metadata of the file: %s, %v", raw, err)
	}

	inBucket := snapshotFile("s3-daily-server-1-4d5e6f", "2026-11-01T00:00:00Z")
	_ = unstructured.SetNestedMap(inBucket.Object, map[string]any{"bucket": "backups", "prefix": "prod", "region": "eu-1"}, "spec", "s3")
	_ = unstructured.SetNestedField(inBucket.Object, false, "status", "readyToUse")
	_ = unstructured.SetNestedMap(inBucket.Object, map[string]any{"message": "access denied"}, "status", "error")
	files, _ = parse([]unstructured.Unstructured{inBucket})
	if got, err = wanted(cluster, nil, &files[0]); err != nil {
		t.Fatal(err)
	}
	file = got.SnapshotFile
	if file.S3 == nil || file.S3.Bucket != "backups" || file.S3.Folder != "prod" || file.Status != "failed" ||
		file.Message != "access denied" ||
		len(got.OwnerReferences) != 1 || got.Annotations[rkev1.SnapshotStorageAnnotation] != rkev1.SnapshotStorageS3 {
		t.Errorf("in a bucket: %+v, owners %v", file, got.OwnerReferences)
	}
}

// TestNodeFound: an ETCDSnapshot is looked at again when the Machine of its file becomes known, which the cache may learn after the file.
func TestNodeFound(t *testing.T) {
	machine := func(role, node string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.EtcdRoleLabel: role}}}
		m.Status.NodeRef.Name = node
		return m
	}
	for name, tc := range map[string]struct {
		before, after *clusterv1.Machine
		want          bool
	}{
		"its Node is known now": {machine("true", ""), machine("true", "server-1"), true},
		"it has another Node":   {machine("true", "server-1"), machine("true", "server-2"), true},
		"nothing new":           {machine("true", "server-1"), machine("true", "server-1"), false},
		"a worker":              {machine("", ""), machine("", "server-1"), false},
	} {
		if got := nodeFound.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
