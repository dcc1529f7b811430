package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// startTestEtcd starts etcd without an API server.
func startTestEtcd(t *testing.T, options Options) *etcdServer {
	t.Helper()
	options.Logger, options.UnsafeNoFsync = slog.New(slog.DiscardHandler), true
	if err := makeEtcdDir(options.etcdDir()); err != nil {
		t.Fatal(err)
	}
	etcd, err := startEtcd(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return etcd
}

// TestWatchThenGet: what a watch was told of is there for whoever reads it at once.
func TestWatchThenGet(t *testing.T) {
	etcd := startTestEtcd(t, Options{DataDir: t.TempDir()})
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

// TestManyWatchesEnd: when many watches of a client end at once, the others go on.
func TestManyWatchesEnd(t *testing.T) {
	etcd := startTestEtcd(t, Options{DataDir: t.TempDir()})
	defer etcd.close()
	const rounds, watches = 5, 200
	client := newLocalClient(etcd.member)
	defer client.Close()
	remaining := client.Watch(t.Context(), "remaining")

	var writer sync.WaitGroup
	ctx, stopWriting := context.WithCancel(t.Context())
	defer writer.Wait()
	defer stopWriting()
	writer.Go(func() {
		for ctx.Err() == nil {
			if _, err := client.Put(ctx, "key", "value"); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for round := range rounds {
		ending, end := context.WithCancel(t.Context())
		var events sync.WaitGroup
		for range watches {
			events.Go(func() {
				for range client.Watch(ending, "key") {
				}
			})
		}
		time.Sleep(200 * time.Millisecond) // most of the watches have begun and get events
		end()
		if _, err := client.Put(t.Context(), "remaining", strconv.Itoa(round)); err != nil {
			t.Fatal(err)
		}
		late := time.After(30 * time.Second)
		select {
		case response, open := <-remaining:
			if !open || response.Err() != nil {
				t.Fatalf("the remaining watch has ended: %v", response.Err())
			}
		case <-late:
			t.Fatalf("round %d: no event after 30 s", round)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			events.Wait()
		}()
		select {
		case <-ended:
		case <-late:
			t.Fatalf("round %d: watches that were cancelled have not ended after 30 s", round)
		}
	}
}

// blockedStream is a stream whose server takes requests when the test does.
type blockedStream struct {
	etcdserverpb.Watch_WatchClient
	ctx  context.Context
	sent chan *etcdserverpb.WatchRequest
}

func (s *blockedStream) Context() context.Context { return s.ctx }

func (s *blockedStream) Send(request *etcdserverpb.WatchRequest) error {
	select {
	case s.sent <- request:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *blockedStream) CloseSend() error {
	close(s.sent)
	return nil
}

// TestQueuedStream: requests wait for the server in order, CloseSend comes after them, and nothing is left of a stream that has ended.
func TestQueuedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		server := &blockedStream{ctx: ctx, sent: make(chan *etcdserverpb.WatchRequest)}
		stream := newQueuedStream(server)
		var want, got []*etcdserverpb.WatchRequest
		for range 100 {
			request := &etcdserverpb.WatchRequest{}
			want = append(want, request)
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(want[0]); err == nil {
			t.Error("a request after CloseSend is taken")
		}
		for request := range server.sent {
			got = append(got, request)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d requests, or not in order; want %d", len(got), len(want))
		}

		server = &blockedStream{ctx: ctx, sent: make(chan *etcdserverpb.WatchRequest)}
		stream = newQueuedStream(server)
		if err := stream.Send(want[0]); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait() // the test fails if a goroutine remains
		if err := stream.Send(want[0]); err == nil {
			t.Error("a stream that has ended takes a request")
		}
	})
}
