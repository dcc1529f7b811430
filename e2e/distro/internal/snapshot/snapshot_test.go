package snapshot

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// runEtcd runs a member on a data folder and returns a client of it, and what stops both.
func runEtcd(t *testing.T, dataDir string, change func(*embed.Config)) (*clientv3.Client, func()) {
	t.Helper()
	conf := embed.NewConfig()
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	conf.Dir, conf.ListenClientUrls, conf.ListenPeerUrls, conf.AdvertisePeerUrls = dataDir, any, any, any
	conf.InitialCluster, conf.LogLevel, conf.UnsafeNoFsync = "default=http://127.0.0.1:0", "panic", true
	if change != nil {
		change(conf)
	}
	e, err := embed.StartEtcd(conf)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Server.ReadyNotify()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Clients[0].Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			_ = c.Close()
			e.Close()
		}
	}
	t.Cleanup(stop)
	return c, stop
}

func put(t *testing.T, c *clientv3.Client, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if _, err := c.Put(t.Context(), pairs[i], pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, c *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	got, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range got.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

func TestSaveAndRestore(t *testing.T) {
	for _, compress := range []bool{false, true} {
		dir := t.TempDir()
		c, stop := runEtcd(t, filepath.Join(dir, "etcd"), nil)
		put(t, c, "/a", "1", "/b", "2", "/a", "3")
		folder := Folder{Path: filepath.Join(dir, "db", "snapshots"), Own: true}
		at := time.Unix(1_700_000_000, 5)
		saved, err := folder.Save(t.Context(), c, Request{Name: "on-demand", Node: "n1", At: at, Compress: compress,
			Metadata: map[string]string{"spec": "x"}})
		if err != nil {
			t.Fatal(err)
		}
		name := "on-demand-n1-1700000000"
		if compress {
			name += ".zip"
		}
		list, err := folder.List()
		if err != nil {
			t.Fatal(err)
		}
		want := []File{{Name: name, Path: filepath.Join(folder.Path, name), Size: saved.Size, Created: time.Unix(1_700_000_000, 0),
			Metadata: map[string]string{"spec": "x"}}}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want[0], saved); diff != "" {
			t.Error(diff)
		}
		if entries, _ := os.ReadDir(folder.Path); len(entries) != 1 {
			t.Errorf("files are left over: %v", entries)
		}
		put(t, c, "/b", "changed", "/c", "new")
		stop()

		restored := filepath.Join(dir, "restored")
		if err := Restore(saved.Path, restored, Member{Name: "n1-abc", PeerURL: "http://127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		read, err := Read(restored, "/")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string][]byte{"/a": []byte("3"), "/b": []byte("2")}, read); diff != "" {
			t.Error(diff)
		}
		again, _ := runEtcd(t, restored, func(c *embed.Config) { c.Name, c.InitialCluster = "n1-abc", "n1-abc=http://127.0.0.1:0" })
		if diff := cmp.Diff(map[string]string{"/a": "3", "/b": "2"}, get(t, again, "/")); diff != "" {
			t.Error(diff)
		}
		members, err := again.MemberList(t.Context())
		if err != nil || len(members.Members) != 1 || members.Members[0].Name != "n1-abc" {
			t.Errorf("members %v, %v", members, err)
		}
	}
}

func TestReadSeesDeletions(t *testing.T) {
	dir := t.TempDir()
	c, stop := runEtcd(t, dir, nil)
	put(t, c, "/boot/a", "1", "/boot/b", "2", "/other", "3")
	if _, err := c.Delete(t.Context(), "/boot/a"); err != nil {
		t.Fatal(err)
	}
	stop()
	got, err := Read(dir, "/boot/")
	if diff := cmp.Diff(map[string][]byte{"/boot/b": []byte("2")}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	c, _ := runEtcd(t, filepath.Join(dir, "etcd"), nil)
	folder := Folder{Path: filepath.Join(dir, "snapshots"), Own: true}
	good, err := folder.Save(t.Context(), c, Request{Name: "a", Node: "n", At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(good.Path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, raw...)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{
		"cut-n-1": raw[:len(raw)/2], "cut-by-a-byte-n-1": raw[:len(raw)-1], "without-checksum-n-1": raw[:len(raw)-32], "flipped-n-1": flipped,
		"empty-n-1": nil, "no-archive-n-1.zip": raw,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		into := filepath.Join(dir, "restored")
		if err := Restore(file, into, Member{Name: "n", PeerURL: "http://127.0.0.1:1"}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		for _, left := range []string{into, into + ".snapshot"} {
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %s is left over", name, left)
			}
		}
	}
	if err := Restore(filepath.Join(dir, "nothing"), filepath.Join(dir, "restored"), Member{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	c, _ := runEtcd(t, filepath.Join(dir, "etcd"), nil)
	for name, r := range map[string]Request{"a folder": {Name: "../x", Node: "n"}, "no name": {Node: "n"}, "hidden": {Name: ".x", Node: "n"}} {
		if _, err := (Folder{Path: dir, Own: true}).Save(t.Context(), c, r); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	f, err := Folder{Path: filepath.Join(dir, "missing")}.Save(t.Context(), c, Request{Name: "a", Node: "n", At: time.Unix(9, 0)})
	if err == nil || f.Fault != err.Error() || f.Name != "a-n-9" || f.Path != "" {
		t.Errorf("a missing folder of the user's: %+v, %v", f, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Folder{Path: filepath.Join(dir, "own"), Own: true}).Save(ctx, c, Request{Name: "a", Node: "n"}); err == nil {
		t.Error("a snapshot that was cancelled counts")
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "own")); len(left) > 0 {
		t.Errorf("a snapshot that was cancelled left %v", left)
	}
}

func TestPruneAndDelete(t *testing.T) {
	dir := t.TempDir()
	f := Folder{Path: filepath.Join(dir, "snapshots"), Own: true}
	if list, err := f.List(); err != nil || len(list) > 0 {
		t.Fatalf("an empty folder: %v, %v", list, err)
	}
	for _, name := range []string{"snapshots/a-n-10", "snapshots/a-n-9.zip", "snapshots/a-n-100", "snapshots/b-n-1", ".metadata/a-n-10",
		"snapshots/.a-n-1.part"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := f.Prune("a", 1)
	if diff := cmp.Diff([]string{"a-n-10", "a-n-9.zip"}, gone); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := os.Stat(filepath.Join(dir, ".metadata", "a-n-10")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("metadata of a deleted snapshot: %v", err)
	}
	if gone, err := f.Prune("a", 0); err != nil || len(gone) > 0 {
		t.Errorf("keeping none deleted %v, %v", gone, err)
	}
	gone, err = f.Delete("never-there", "b-n-1")
	if diff := cmp.Diff([]string{"b-n-1"}, gone); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := f.Delete("../snapshots/a-n-100"); err == nil || !strings.Contains(err.Error(), "not the name of a snapshot") {
		t.Errorf("a path: %v", err)
	}
}

func TestObjectNames(t *testing.T) {
	at := time.Unix(7, 0)
	for _, tc := range []struct {
		file File
		want string
	}{
		{File{Name: "On-Demand-n1-7", Path: "/s/On-Demand-n1-7", Created: at, TokenHash: "abc"}, "local-on-demand-n1-7-"},
		{File{Name: "my_snap-n1-7.zip", Path: "/s/my_snap-n1-7.zip", Created: at, TokenHash: "abc"}, "local-etcd-snapshot-n1-7.zip-"},
	} {
		o := Describe(tc.file, "n1.example.com")
		if !strings.HasPrefix(o.Name, tc.want) || len(o.Name) != len(tc.want)+6 {
			t.Errorf("%s: %s", tc.file.Name, o.Name)
		}
		if o.Spec.Location != "file://"+tc.file.Path || !*o.Status.ReadyToUse || o.Annotations[TokenAnnotation] != "abc" {
			t.Errorf("%+v", o)
		}
	}
	failed := Describe(File{Name: "a", Created: at, Fault: "disk full"}, "n1")
	if *failed.Status.ReadyToUse || *failed.Status.Error.Message != "disk full" || failed.Spec.Location != "" {
		t.Errorf("%+v", failed)
	}
	bucket := &ObjectS3{Bucket: "b", Prefix: "f"}
	for _, tc := range []struct {
		file       File
		node, name string
	}{
		{File{Name: "a-n2-7", Location: "s3://b/f/a-n2-7", Node: "n2", Created: at, S3: bucket}, "n2", "s3-a-n2-7-"},
		{File{Name: "a-n2-7", Location: "s3://b/f/a-n2-7", Created: at, S3: bucket}, "s3", "s3-a-n2-7-"},
		{File{Name: "a_b-n2-7", Created: at, S3: bucket, Fault: "denied"}, "s3", "s3-etcd-snapshot-s3-7-"},
	} {
		o := Describe(tc.file, "n1")
		if !strings.HasPrefix(o.Name, tc.name) || o.Labels[NodeLabel] != "s3" || o.Spec.NodeName != tc.node || o.Spec.S3 != bucket ||
			o.Spec.Location != tc.file.Location || *o.Status.ReadyToUse != (tc.file.Fault == "") {
			t.Errorf("%+v", o)
		}
	}
}
