package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"

	_ "github.com/drover-dev/drover/hub/server/embedded/internal/quietetcd" // before any client is made
)

const (
	etcdStartTimeout = 60 * time.Second
	// etcdName is the name of the only member.
	etcdName = "hub"
)

// nowhere is what the member announces to others. There are none, and nothing listens there.
var nowhere = url.URL{Scheme: "http", Host: "127.0.0.1:1"}

// etcdServer is one etcd member that nobody but this process can reach: the API server calls its functions. It listens on a unix socket in
// a directory of mode 0700, for health checks, and not at all for peers, since it will never have any.
type etcdServer struct {
	member   *etcdserver.EtcdServer
	endpoint string
	failed   chan error // receives one value when the member ends without having been asked to
	settled  func()     // from here on, what etcd warns about is worth an operator's attention
	close    func()
}

func startEtcd(ctx context.Context, opts Options) (*etcdServer, error) {
	dir := opts.etcdDir()
	socket, release, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	removeSocket := func() {
		_ = os.Remove(socket)
		release()
	}

	// What etcd complains about while it comes up and goes down is how it always talks then; a real failure is also returned.
	var running atomic.Bool
	log := opts.Logger.With("logger", "etcd")
	member, err := embed.StartEtcd(etcdConfig(dir, socket, opts, zapToSlog(log, &running)))
	if err != nil {
		removeSocket()
		return nil, fmt.Errorf("starting etcd in %s: %w", dir, err)
	}
	closeMember := sync.OnceFunc(func() {
		running.Store(false)
		member.Close()
		removeSocket()
	})
	select {
	case <-member.Server.ReadyNotify():
	case err = <-member.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(etcdStartTimeout):
		err = fmt.Errorf("not ready after %s", etcdStartTimeout)
	}
	if err != nil {
		closeMember()
		return nil, fmt.Errorf("starting etcd in %s: %w", dir, err)
	}
	s := &etcdServer{
		member:   member.Server,
		endpoint: "unix://" + socket,
		failed:   make(chan error, 1),
		settled:  func() { running.Store(true) },
		close:    closeMember,
	}
	go func() {
		select {
		case err := <-member.Err():
			s.failed <- err
		case <-member.Server.StopNotify():
			s.failed <- errors.New("stopped")
		}
	}()
	return s, nil
}

func makeEtcdDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making etcd directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("protecting etcd directory: %w", err)
	}
	return nil
}

func etcdConfig(dir, socket string, opts Options, log embedLogger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = etcdName
	cfg.Dir = dir
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.ListenPeerUrls = nil
	cfg.AdvertiseClientUrls = []url.URL{nowhere}
	cfg.AdvertisePeerUrls = []url.URL{nowhere}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.EnableGRPCGateway = false
	cfg.QuotaBackendBytes = opts.etcdQuota()
	// With one member an election cannot be contested, so there is no use in waiting long for it: up to 500 ms at the start. Each tick wakes
	// several goroutines, which is most of what an idle hub does.
	cfg.TickMs = 100
	cfg.ElectionMs = 500
	// Watches of the API server are told by this how far they are. One that begins again reads all that was written since, of any kind, into
	// memory: of a minute in which many machines are made, that was 200 MiB.
	cfg.WatchProgressNotifyInterval = opts.bookmarkInterval()
	// Old versions are kept for one to two minutes, and nothing is written where nothing has changed. An API server keeps them for five: that
	// of a thousand new machines were 400 MiB, which etcd maps into memory. A watch that has timed out is not behind by more than a bookmark.
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = "1m"
	// What was written since the last snapshot but one is held in memory for members that are behind. There are none.
	cfg.SnapshotCount = 1000
	cfg.SnapshotCatchUpEntries = 1
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.UnsafeNoFsync = opts.UnsafeNoFsync
	cfg.ZapLoggerBuilder = log
	return cfg
}
