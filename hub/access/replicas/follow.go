package replicas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// SessionsPath is the path at which a replica streams its sessions to the others.
const SessionsPath = "/v3/peers/sessions"

// maxFollowPause is the longest pause between two attempts to follow a replica that does not respond.
const maxFollowPause = 2 * time.Second

// follow reads the peer's stream, over and over, until the peer is dropped.
func (d *Directory) follow(p *peer) {
	defer d.forget(p, "left")
	for pause := time.Duration(0); p.ctx.Err() == nil; {
		begin := time.Now()
		complete, err := d.followOnce(p)
		if !complete {
			d.forget(p, "unreachable")
			d.log.V(1).Info("Could not follow another replica", "replica", p.ID, "address", p.Address, "reason", err.Error())
		}
		if complete && time.Since(begin) > heartbeatTimeout {
			// The end of a stream need not be the end of the replica: try again at once.
			pause = 0
			continue
		}
		pause = min(maxFollowPause, 2*pause+heartbeatInterval/2)
		select {
		case <-p.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

var errForgotten = errors.New("the sessions of the replica were dropped")

// followOnce reads one stream until it ends, the replica stops sending, or another replica answers. It reports whether a
// complete snapshot was received.
func (d *Directory) followOnce(p *peer) (complete bool, err error) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	d.setStream(p, cancel)
	// expirePeers watches a replica only after its first message.
	timeout := time.AfterFunc(heartbeatTimeout, func() { cancel(errors.New("no answer")) })
	defer timeout.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.Address+SessionsPath, nil)
	if err != nil {
		return false, fmt.Errorf("making a request to a replica: %w", err)
	}
	response, err := p.stream.RoundTrip(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the replica answered %s", response.Status)
	}
	set := map[string]struct{}(nil)
	err = read(response.Body, func(m message) error {
		timeout.Reset(heartbeatTimeout)
		p.seen(sinceStart())
		if m.Replica != "" && m.Replica != p.ID {
			return fmt.Errorf("this is replica %s", m.Replica)
		}
		d.setPeerDraining(p, m.Draining)
		if m.Snapshot {
			set = make(map[string]struct{}, len(m.Have))
		}
		if set == nil {
			d.update(p, m.Have, m.Gone)
			return nil
		}
		for _, key := range m.Have {
			set[key] = struct{}{}
		}
		if m.Complete {
			d.replace(p, set)
			complete, set = true, nil
		}
		return nil
	})
	return complete, err
}

func (d *Directory) setStream(p *peer, end context.CancelCauseFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.endStream = end
}

func (d *Directory) setPeerDraining(p *peer, draining bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.draining = draining
}
