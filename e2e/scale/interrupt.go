package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/e2e/scale/figures"
)

// restart restarts the only hub, waits until all agents are connected again, and changes plans.
func (a *agents) restart(run *figures.AgentRun) (err error) {
	failures := make([]int64, len(a.watchers))
	for i, w := range a.watchers {
		failures[i] = w.Failures()
	}
	began := time.Now()
	if err := a.hubs[0].Stop(); err != nil {
		return err
	}
	if err := a.hubs[0].start(a.ctx); err != nil {
		return err
	}
	fmt.Printf("%8.1f s  hub ready again\n", a.hubs[0].started.Seconds())
	run.BackAfter, err = a.awaitBack(began, func() error {
		var interrupted, away int
		for i, w := range a.watchers {
			if w.Failures() > failures[i] {
				interrupted++
			}
			if !w.Connected() {
				away++
			}
		}
		if interrupted < a.n || away > 0 {
			return fmt.Errorf("%d of %d were interrupted, %d are not connected", interrupted, a.n, away)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, run.ChangedBackAfter, err = a.change("third")
	return err
}

// kill kills one of the replicas, changes plans at the same moment, and waits until all agents have connections to the others.
func (a *agents) kill(run *figures.AgentRun) error {
	if err := a.balancer.read(a.ctx); err != nil {
		return err
	}
	fmt.Printf("          connections to each replica: %d\n", a.balancer.Connections)
	began := time.Now()
	a.hubs[0].Kill()
	a.hubs = a.hubs[1:]
	changed := make(chan error, 1)
	go func() {
		var err error
		_, run.ChangedBackAfter, err = a.change("third")
		changed <- err
	}()
	back, err := a.awaitBack(began, func() error {
		if err := a.balancer.read(a.ctx); err != nil {
			return err
		}
		var all int64
		for _, n := range a.balancer.Connections {
			all += n
		}
		if dead := a.balancer.Connections[0]; dead > 0 || all < int64(a.n) {
			return fmt.Errorf("%d connections to the replica that was killed, %d of %d to the others", dead, all-dead, a.n)
		}
		return nil
	})
	run.BackAfter = back
	return errors.Join(err, <-changed)
}

// awaitBack waits until all agents are connected again, and returns how long that took.
func (a *agents) awaitBack(began time.Time, connected func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(a.ctx, back)
	defer cancel()
	err := poll(ctx, "all agents to be connected again", connected)
	return time.Since(began), err
}
