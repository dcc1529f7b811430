package render

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestResetScriptKeepsFive: RKE2 and k3s keep the data of etcd of before each restore, of some GiB perhaps. The last five stay, and what
// failed attempts have left does not count.
func TestResetScriptKeepsFive(t *testing.T) {
	h := newHost(t)
	db := filepath.Join(h.data, "server/db")
	for i := range 6 {
		h.write(filepath.Join(db, fmt.Sprintf("etcd-old-179000000%d/member/wal/0.wal", i)), "x")
		h.write(filepath.Join(db, fmt.Sprintf("etcd-old-179000001%d/name", i)), "x")
	}
	h.write(filepath.Join(db, "etcd/member/wal/0.wal"), "x")
	h.write(filepath.Join(h.bin, "k3s"), "#!/bin/sh\nmv '"+db+"/etcd' '"+db+"/etcd-old-1790000020'\n")
	if out, _, err := h.run(restoreResetSh, "k3s", h.data, t.TempDir(), "--cluster-reset-restore-path=/a"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	found, _ := filepath.Glob(filepath.Join(db, "etcd-old-*/member/wal"))
	for _, wal := range found {
		got = append(got, filepath.Base(filepath.Dir(filepath.Dir(wal))))
	}
	want := []string{"etcd-old-1790000002", "etcd-old-1790000003", "etcd-old-1790000004", "etcd-old-1790000005", "etcd-old-1790000020"}
	if !slices.Equal(got, want) {
		t.Errorf("kept are %v, want %v", got, want)
	}
	if failed, _ := filepath.Glob(filepath.Join(db, "etcd-old-179000001*")); len(failed) != 6 {
		t.Errorf("of what failed attempts have left, there is %v", failed)
	}
}

// TestResetScriptUnpacked: the content of an archive, with all Secrets of the cluster, does not stay beside it, whether the restore has
// succeeded or not. A file of that name which was there before does.
func TestResetScriptUnpacked(t *testing.T) {
	for name, c := range map[string]struct {
		before, downloaded bool
		exit               int
	}{
		"restored": {}, "failed": {exit: 3}, "there before": {before: true}, "from a bucket": {downloaded: true},
	} {
		h := newHost(t)
		folder, other := filepath.Join(h.data, "server/db/snapshots"), t.TempDir()
		archive := filepath.Join(other, "a.zip")
		path := archive
		if c.downloaded {
			archive, path = filepath.Join(folder, "a.zip"), "a.zip"
		}
		unpacked := filepath.Join(filepath.Dir(archive), "a")
		h.write(archive, "zip")
		if c.before {
			h.write(unpacked, "x")
		}
		h.write(filepath.Join(h.bin, "k3s"), fmt.Sprintf("#!/bin/sh\necho all >'%s'\nexit %d\n", folder+unpacked, c.exit))
		out, _, err := h.run(restoreResetSh, "k3s", h.data, folder, "--cluster-reset-restore-path="+path)
		if (err != nil) != (c.exit != 0) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if _, err := os.Stat(unpacked); (err == nil) != c.before {
			t.Errorf("%s: the content of the archive: %v", name, err)
		}
		if _, err := os.Stat(archive); err != nil {
			t.Errorf("%s: the archive: %v", name, err)
		}
	}
}
