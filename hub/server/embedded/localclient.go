package embedded

import (
	"context"
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
	return readableStream{stream, w.store}, err
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
