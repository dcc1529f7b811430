package gctuner

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTargetFollowsAllocation(t *testing.T) {
	begin := time.Unix(1000, 0)
	current := usage{at: begin, live: 100 << 20}
	var set []int
	tuner := &tuner{
		Options: Options{Percent: 50, BusyLeast: 60, BusyMost: 200, BusyHeap: 400 << 20, Busy: 8 << 20},
		usage:   func() usage { return current }, set: func(percent int) { set = append(set, percent) },
		last: current, percent: 50,
	}
	for _, step := range []struct {
		name      string
		after     time.Duration
		allocated uint64
		live      uint64
		want      int
	}{
		{"at rest", 2 * time.Minute, 20 << 20, 100 << 20, 50},
		{"busy", 5 * time.Second, 50 << 20, 100 << 20, 200},
		{"busy, with more in use", 5 * time.Second, 200 << 20, 240 << 20, 66},
		{"busy, with more in use than the busy heap", 5 * time.Second, 200 << 20, 800 << 20, 60},
		{"busy, with little in use", 5 * time.Second, 200 << 20, 1 << 20, 200},
		{"busy before the first collection", 5 * time.Second, 200 << 20, 0, 50},
		{"busy again", 5 * time.Second, 200 << 20, 100 << 20, 200},
		{"at rest again", 2 * time.Minute, 200 << 20, 100 << 20, 50},
	} {
		current = usage{at: current.at.Add(step.after), allocated: current.allocated + step.allocated, live: step.live}
		tuner.tune()
		if tuner.percent != step.want {
			t.Errorf("%s: the target is %d %%, want %d", step.name, tuner.percent, step.want)
		}
	}
	if want := []int{200, 66, 60, 200, 50, 200, 50}; !slices.Equal(set, want) {
		t.Errorf("the targets set are %v, want %v: one that stays is not set again", set, want)
	}
}

func TestRestsWhenNoCollectionComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var percent, released int
		current := usage{at: time.Now(), live: 100 << 20}
		tuner := &tuner{
			Options: Options{Percent: 50, BusyLeast: 60, BusyMost: 200, BusyHeap: 400 << 20, Busy: 8 << 20},
			usage:   func() usage { current.at = time.Now(); return current }, set: func(p int) { percent = p },
			release: func() { released++ }, last: current, percent: 50,
		}
		for range 3 {
			time.Sleep(restAfter - time.Second)
			current.allocated += 200 << 20
			tuner.tune()
			synctest.Wait()
			if percent != 200 || released != 0 {
				t.Fatalf("the target of a busy program is %d %%, want 200, and memory was released %d times", percent, released)
			}
		}
		current.allocated += 200 << 20
		time.Sleep(restAfter)
		synctest.Wait()
		if percent != 200 || released != 0 {
			t.Fatalf("busy without a collection, the target is %d %%, want 200, and memory was released %d times", percent, released)
		}
		time.Sleep(restAfter)
		synctest.Wait()
		if percent != 50 || released != 1 {
			t.Errorf("%s after the last allocation the target is %d %%, want 50, and memory was released %d times", restAfter, percent, released)
		}
		time.Sleep(10 * restAfter)
		if synctest.Wait(); released != 1 {
			t.Errorf("at rest, memory was released %d times", released)
		}
	})
}

// TestRestsAfterCollectionsAtRest: also a program whose last collection was one at rest returns what it took while it was busy.
func TestRestsAfterCollectionsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var percent, released int
		current := usage{at: time.Now(), live: 100 << 20}
		tuner := &tuner{
			Options: Options{Percent: 25, BusyLeast: 60, BusyMost: 200, BusyHeap: 400 << 20, Busy: 8 << 20},
			usage:   func() usage { current.at = time.Now(); return current }, set: func(p int) { percent = p },
			release: func() { released++; current.unused = 120 << 20 }, last: current, percent: 25,
		}
		time.Sleep(time.Second)
		current.allocated += 200 << 20
		tuner.tune()
		time.Sleep(restAfter / 2)
		tuner.tune()
		if percent != 25 || released != 0 {
			t.Fatalf("%d %%, released %d times", percent, released)
		}
		time.Sleep(restAfter / 2)
		if synctest.Wait(); released != 1 || percent != 60 {
			t.Errorf("at rest with 120 MiB between objects the target is %d %%, want 60, and memory was released %d times", percent, released)
		}
		for live, want := range map[uint64]int{80 << 20: 100, 140 << 20: 25, 150 << 20: 25, 200 << 20: 25} {
			if current.live = live; tuner.restPercent(live) != want {
				t.Errorf("at rest with %d MiB in use the target is %d %%, want %d", live>>20, tuner.restPercent(live), want)
			}
		}
	})
}

func TestBusyPercent(t *testing.T) {
	opts := Options{BusyLeast: 100, BusyMost: 400, BusyHeap: 1 << 30, LargeHeap: 3 << 30}
	for live, want := range map[uint64]int{
		100 << 20: 400, 300 << 20: 241, 400 << 20: 200, 1 << 30: 200, 1280 << 20: 140, 2 << 30: 100,
	} {
		if got := opts.busyPercent(live); got != want {
			t.Errorf("with %d MiB in use: %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestStartPercent(t *testing.T) {
	started := make(chan struct{})
	opts := Options{BusyLeast: 100, BusyMost: 400, BusyHeap: 1 << 30, StartMost: 150, Started: started}
	for live, want := range map[uint64]int{100 << 20: 150, 2 << 30: 100} {
		if got := opts.busyPercent(live); got != want {
			t.Errorf("while it starts, with %d MiB in use: %d %%, want %d", live>>20, got, want)
		}
	}
	close(started)
	if got := opts.busyPercent(100 << 20); got != 400 {
		t.Errorf("once it has started: %d %%, want 400", got)
	}
}

// TestTunesAfterCollections collects until it is tuned, three times: a collection that ends while the finalizer still runs is not seen.
func TestTunesAfterCollections(t *testing.T) {
	tuned := make(chan struct{}, 1)
	tuner := &tuner{set: func(int) {}, usage: func() usage {
		select {
		case tuned <- struct{}{}:
		default: // the test is over; its sentinel is not, and must not hold up other finalizers
		}
		return readUsage()
	}}
	runtime.SetFinalizer(&sentinel{tuner}, (*sentinel).collected)
	for range 3 {
		deadline := time.After(time.Minute)
		for waiting := true; waiting; {
			runtime.GC()
			select {
			case <-tuned:
				waiting = false
			case <-deadline:
				t.Fatal("collections end without tuning")
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if u := readUsage(); u.live == 0 || u.allocated < u.live {
		t.Errorf("the runtime tells %+v", u)
	}
}
