package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// schedules is how many random schedules are played, each over TCP and through a tunnel.
const schedules = 2000

// patience is how long an end waits for what has to come.
const patience = time.Minute

// ending is how a schedule's connection ends.
type ending int

const (
	// The hub's side, or the target, closes when it has read and written everything.
	hubCloses ending = iota
	targetCloses
	// One side goes away in the middle of what the other one sends.
	hubLeaves
	targetLeaves
	// Nobody listens at the target.
	refused
	endings
)

// schedule is what both ends of a connection do, derived from a seed alone, so that a failure can be played again.
type schedule struct {
	seed         uint64
	ending       ending
	toTarget     int
	toHub        int
	slow, chunky bool
}

func newSchedule(seed uint64) schedule {
	random := rand.New(rand.NewPCG(seed, 1))
	size := func() int {
		switch random.IntN(10) {
		case 0:
			return 0
		case 1:
			return 1<<20 + random.IntN(3<<20)
		default:
			return random.IntN(100 << 10)
		}
	}
	return schedule{
		seed: seed, ending: ending(random.IntN(int(endings))), toTarget: size(), toHub: size(),
		slow: random.IntN(4) == 0, chunky: random.IntN(2) == 0,
	}
}

func (s schedule) String() string {
	return fmt.Sprintf("schedule %d: ending %d, %d bytes to the target, %d to the hub, slow %v, chunky %v",
		s.seed, s.ending, s.toTarget, s.toHub, s.slow, s.chunky)
}

// side is what one end does, and what comes of it.
type side struct {
	schedule
	send, expect []byte
	closes       bool
	leaves       bool
	random       *rand.Rand
}

// outcome is what a side has seen. Where somebody leaves in the middle, how much arrived is a matter of time, on TCP too.
type outcome struct {
	// All is whether all that was sent has arrived, Beginning whether what arrived is the beginning of it.
	All, Beginning bool
	// Ended is whether the side saw the other side end the connection.
	Ended bool
	// Clean is whether that looked like an ordinary end.
	Clean bool
}

func (s schedule) sides() (hub, target *side) {
	up, down := pattern(s.seed, s.toTarget), pattern(s.seed+1, s.toHub)
	hub = &side{schedule: s, send: up, expect: down, closes: s.ending == hubCloses, leaves: s.ending == hubLeaves,
		random: rand.New(rand.NewPCG(s.seed, 2))}
	target = &side{schedule: s, send: down, expect: up, closes: s.ending == targetCloses, leaves: s.ending == targetLeaves,
		random: rand.New(rand.NewPCG(s.seed, 3))}
	return hub, target
}

func pattern(seed uint64, size int) []byte {
	b := make([]byte, size)
	var key [32]byte
	copy(key[:], strconv.FormatUint(seed, 10))
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func (s *side) run(conn net.Conn) outcome {
	defer conn.Close()
	written := make(chan struct{})
	pauses := rand.New(rand.NewPCG(s.random.Uint64(), 4))
	go func() {
		defer close(written)
		s.write(conn, pauses)
	}()
	got, err := s.read(conn)
	<-written
	result := outcome{All: bytes.Equal(got, s.expect), Beginning: bytes.HasPrefix(s.expect, got)}
	if !s.closes && !s.leaves && err == nil {
		// The other side closes, or has left.
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	var timeout net.Error
	result.Ended = err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
	result.Clean = errors.Is(err, io.EOF)
	return result
}

func (s *side) write(conn net.Conn, random *rand.Rand) {
	for rest := s.send; len(rest) > 0; {
		n := min(len(rest), s.chunk(random))
		if _, err := conn.Write(rest[:n]); err != nil {
			return
		}
		rest = rest[n:]
		s.pause(random)
	}
}

// read reads until it has all it expects, or half of it where this side leaves in the middle. It goes on until then whatever else happens.
func (s *side) read(conn net.Conn) ([]byte, error) {
	want := len(s.expect)
	if s.leaves {
		want /= 2
	}
	got := make([]byte, want)
	for read := 0; read < want; {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(got[read:min(want, read+s.chunk(s.random))])
		if read += n; err != nil {
			return got[:read], err
		}
		s.pause(s.random)
	}
	if s.leaves {
		_ = conn.Close()
	}
	return got, nil
}

func (s *side) chunk(random *rand.Rand) int {
	if s.chunky {
		return 1 + random.IntN(128<<10)
	}
	return 1 + random.IntN(8<<10)
}

func (s *side) pause(random *rand.Rand) {
	if s.slow && random.IntN(4) == 0 {
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
	}
}

var runs atomic.Uint32

// run runs a schedule with a connection that dial opens. The target waits for a while longer than the hub's side lasts: its agent may
// be slow to dial, or have been killed before it could.
func (s schedule) run(t *testing.T, while time.Duration, dial func(address string) (net.Conn, error)) [2]outcome {
	hub, far := s.sides()
	seen := make(chan outcome, 1)
	// Every run has an address of its own: an agent may still dial when its schedule is over, and the port may be another's by then.
	number := runs.Add(1)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", byte(number>>8), byte(number)))
	if err != nil {
		t.Error(err)
		return [2]outcome{}
	}
	defer listener.Close()
	address := listener.Addr().String()
	if s.ending == refused {
		address = "127.0.0.1:1"
		seen <- outcome{}
	} else {
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				seen <- outcome{Ended: true, Beginning: true}
				return
			}
			seen <- far.run(conn)
		}()
	}
	conn, err := dial(address)
	if err != nil {
		// A tunnel says so at the first read, but where there is no session any more.
		_ = listener.Close()
		return [2]outcome{{Ended: true, Beginning: true, All: len(hub.expect) == 0}, <-seen}
	}
	near := hub.run(conn)
	time.AfterFunc(while, func() { _ = listener.Close() })
	return [2]outcome{near, <-seen}
}

// comparable leaves out what TCP does not promise either: how much arrives when somebody leaves, and whether that looks like an error.
func (s schedule) comparable(outcomes [2]outcome) [2]outcome {
	for i := range outcomes {
		if s.ending == refused || s.ending == hubLeaves || s.ending == targetLeaves {
			outcomes[i].All, outcomes[i].Clean = false, false
		}
	}
	switch s.ending {
	case hubCloses, hubLeaves:
		outcomes[0].Ended, outcomes[0].Clean = false, false
	case targetCloses, targetLeaves:
		outcomes[1].Ended, outcomes[1].Clean = false, false
	}
	return outcomes
}

// TestRandomSchedules runs every schedule over TCP and through a tunnel whose session it shares with others; both ends must see the same.
// Hub and agent are both this repository's, or one is the library: an agent that has not been updated, or a hub of Rancher.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hub   func(testing.TB) *hub
		agent func(h *hub, t testing.TB, key string)
	}{
		"hub and agent":         {ourHub, ourAgent},
		"agent of the library":  {ourHub, func(h *hub, t testing.TB, key string) { h.agent(t.Context(), t, key, nil, nil) }},
		"server of the library": {library, ourAgent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := c.hub(t)
			c.agent(h, t, "a")
			c.agent(h, t, "b")
			h.play(t)
		})
	}
}

func ourHub(t testing.TB) *hub { return ours(t, quiet) }

func ourAgent(h *hub, t testing.TB, key string) { h.ownAgent(t.Context(), t, key, "", nil) }

// play runs all schedules through the agents a and b.
func (h *hub) play(t *testing.T) {
	seeds := make(chan uint64)
	var players sync.WaitGroup
	for range 24 {
		players.Go(func() {
			for seed := range seeds {
				s := newSchedule(seed)
				direct := s.run(t, patience, func(address string) (net.Conn, error) { return net.Dial("tcp", address) })
				tunneled := s.run(t, patience, func(address string) (net.Conn, error) {
					return h.dial(context.Background(), string("ab"[seed%2]), "tcp", address)
				})
				if diff := cmp.Diff(s.comparable(direct), s.comparable(tunneled)); diff != "" {
					t.Errorf("%s: TCP (-) and tunnel (+), hub's side first, see different things:\n%s", s, diff)
				}
			}
		})
	}
	for seed := range uint64(schedules) {
		seeds <- seed
	}
	close(seeds)
	players.Wait()
}

// TestKilledAgents cuts agents, of this repository and of the library, in the middle of schedules: both ends of every connection must see
// it end, after the beginning of what was sent.
func TestKilledAgents(t *testing.T) {
	t.Parallel()
	h := ours(t, quiet)
	for round := range 20 {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			t.Parallel()
			key := "killed-" + strconv.Itoa(round)
			var cut func()
			if round%2 == 0 {
				network := h.relay(t)
				cut = network.Cut
				h.ownAgent(t.Context(), t, key, network.url, nil)
			} else {
				tap := newWireTap(t)
				cut = tap.cut
				h.agent(t.Context(), t, key, nil, tap)
			}
			var players sync.WaitGroup
			for i := range 16 {
				s := newSchedule(uint64(round*100 + i))
				s.ending, s.slow, s.toTarget, s.toHub = ending(i%2), true, 4<<20, 4<<20
				players.Go(func() {
					outcomes := s.run(t, 300*time.Millisecond,
						func(address string) (net.Conn, error) { return h.dial(context.Background(), key, "tcp", address) })
					for side, got := range outcomes {
						if !got.Beginning || !got.Ended && !got.All {
							t.Errorf("%s, side %d: %+v", s, side, got)
						}
					}
				})
			}
			time.Sleep(time.Duration(40+10*round) * time.Millisecond)
			cut()
			players.Wait()
			wait.Until(t, time.Minute, "the session is gone", func() bool { return !h.connected(key) })
		})
	}
}
