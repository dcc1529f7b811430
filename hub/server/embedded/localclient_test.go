package embedded

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestWatchThenGet: what a watch was told of is there for whoever reads it at once.
func TestWatchThenGet(t *testing.T) {
	options := Options{DataDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), UnsafeNoFsync: true}
	if err := makeEtcdDir(options.etcdDir()); err != nil {
		t.Fatal(err)
	}
	etcd, err := startEtcd(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.close()

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // threads that the kernel interrupts anywhere
	const writers, writes = 16, 200
	client := newLocalClient(etcd.member)
	defer client.Close()
	events := client.Watch(t.Context(), "key-", clientv3.WithPrefix())
	for range 100 { // the more watches are sent to, the longer the transaction takes to end
		other := newLocalClient(etcd.member)
		defer other.Close()
		go func() {
			for range other.Watch(t.Context(), "key-", clientv3.WithPrefix()) {
			}
		}()
	}
	var group sync.WaitGroup
	defer group.Wait()
	for writer := range writers {
		group.Go(func() {
			for i := range writes {
				if _, err := client.Put(t.Context(), fmt.Sprintf("key-%d-%d", writer, i), "value"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	behind := 0
	for seen := 0; seen < writers*writes && !t.Failed(); {
		response, open := <-events
		if !open || response.Err() != nil {
			t.Fatalf("the watch has ended: %v", response.Err())
		}
		for _, event := range response.Events {
			seen++
			found, err := client.Get(t.Context(), string(event.Kv.Key))
			if err != nil {
				t.Fatal(err)
			}
			if found.Count == 0 {
				behind++
			}
		}
	}
	if behind > 0 {
		t.Errorf("%d of %d events were of objects that were not there yet", behind, writers*writes)
	}
}
