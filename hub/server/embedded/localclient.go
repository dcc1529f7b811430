package embedded

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// newLocalClient makes a client that calls the functions of a member in this process, and reads what the member has: the only member has
// everything that was ever acknowledged, and need not ask itself whether others know more.
func newLocalClient(member *etcdserver.EtcdServer) *clientv3.Client {
	client := v3client.New(member)
	client.KV = localReads{client.KV}
	watches := readableWatches{adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(member)), member.KV()}
	client.Watcher = clientv3.NewWatchFromWatchClient(watches, client)
	return client
}

type localReads struct{ clientv3.KV }

func (l localReads) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return l.KV.Get(ctx, key, append(opts, clientv3.WithSerializable())...)
}

// readableWatches holds each event back until a read returns it as well. A member sends the events of a transaction to the watches before
// it ends the transaction, and whoever acts on an event at once would be told by localReads that there is no such object, or no such
// change.
type readableWatches struct {
	etcdserverpb.WatchClient
	store mvcc.KV
}

func (w readableWatches) Watch(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return readableStream{newQueuedStream(stream), w.store}, nil
}

type readableStream struct {
	etcdserverpb.Watch_WatchClient
	store mvcc.KV
}

func (s readableStream) Recv() (*etcdserverpb.WatchResponse, error) {
	response, err := s.Watch_WatchClient.Recv()
	if err != nil {
		return response, err
	}
	for wait := time.Microsecond; len(response.Events) > 0 && s.revision() < response.Header.Revision; wait *= 2 {
		time.Sleep(wait)
	}
	return response, nil
}

// revision is that of what a read returns now. A transaction that ends meanwhile is waited for.
func (s readableStream) revision() int64 {
	read := s.store.Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer read.End()
	return read.Rev()
}

// queuedStream is the client's end of a stream of watches whose Send does not wait for the server. etcd's client sends from the goroutine
// that takes responses, and etcd's server takes no request while a response waits to be taken: where many watches of a stream end together,
// the two wait for each other forever (https://github.com/etcd-io/etcd/issues/18879). A connection has buffers between them, the channels
// of the adapter have none. The queue is bounded by the number of watches: a client sends one request to create and one to cancel each.
type queuedStream struct {
	etcdserverpb.Watch_WatchClient
	// changed holds a value when there is something to forward.
	changed chan struct{}

	mu       sync.Mutex
	requests []*etcdserverpb.WatchRequest
	closed   bool
}

func newQueuedStream(stream etcdserverpb.Watch_WatchClient) *queuedStream {
	s := &queuedStream{Watch_WatchClient: stream, changed: make(chan struct{}, 1)}
	go s.forward()
	return s
}

// Send queues a request. It returns an error if the stream has ended.
func (s *queuedStream) Send(request *etcdserverpb.WatchRequest) error {
	if err := s.Context().Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return status.Error(codes.Internal, "Send called after CloseSend")
	}
	s.requests = append(s.requests, request)
	s.signal()
	return nil
}

// CloseSend tells the server, after all requests that are queued, that there will be no more.
func (s *queuedStream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.signal()
	return nil
}

func (s *queuedStream) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// forward sends what is queued to the server, in order, until the stream ends.
func (s *queuedStream) forward() {
	for {
		select {
		case <-s.changed:
		case <-s.Context().Done():
			return
		}
		s.mu.Lock()
		requests, closed := s.requests, s.closed
		s.requests = nil
		s.mu.Unlock()
		for _, request := range requests {
			if s.Watch_WatchClient.Send(request) != nil {
				return // the stream has ended
			}
		}
		if closed {
			_ = s.Watch_WatchClient.CloseSend()
			return
		}
	}
}
