package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// rewatch is the pause before a watch that has ended is begun again.
const rewatch = time.Second

// follow prints what happens until the command is interrupted or the cluster is gone.
func (o *timelineOptions) follow(ctx context.Context, c client.WithWatch, cluster client.ObjectKey, out, errOut io.Writer) error {
	collector, err := collectTimeline(ctx, c, cluster)
	if err != nil {
		return err
	}
	shown := map[event]bool{}
	if err := o.showRecord(o.only(collector.Record()), shown, out); err != nil {
		return err
	}
	return o.watchChanges(ctx, c, cluster, collector, shown, out, errOut)
}

// watchChanges prints what changes. While the hub does not answer, for instance since it is restarted, it goes on trying, and says so once.
func (o *timelineOptions) watchChanges(ctx context.Context, c client.WithWatch, cluster client.ObjectKey, collector *timelines.Collector,
	shown map[event]bool, out, errOut io.Writer) error {
	for silent := false; ; {
		stream, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(cluster.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
		var gone bool
		if err == nil {
			silent = false
			gone, err = o.show(stream, cluster, collector, shown, out)
		}
		switch {
		case ctx.Err() != nil, gone:
			return nil
		case err != nil && !transient(err):
			return fmt.Errorf("watching the timeline of cluster %s: %w", cluster, err)
		case err != nil && !silent:
			silent = true
			fmt.Fprintf(errOut, "Waiting for the hub: %s\n", printable(err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rewatch):
		}
	}
}

// show prints what changes until the watch ends. It returns true if the timeline was deleted.
func (o *timelineOptions) show(
	stream watch.Interface, cluster client.ObjectKey, collector *timelines.Collector, shown map[event]bool, out io.Writer,
) (gone bool, err error) {
	defer stream.Stop()
	for e := range stream.ResultChan() {
		configMap, ok := e.Object.(*corev1.ConfigMap)
		switch {
		case e.Type == watch.Error:
			return false, ignoreExpired(apierrors.FromObject(e.Object))
		case ok && e.Type == watch.Deleted && configMap.Name == rkev1.TimelinePartName(cluster.Name, 0):
			return true, nil
		case !ok || e.Type == watch.Deleted:
			continue
		}
		changed, err := collector.Add(configMap)
		if err != nil {
			return false, err
		}
		if !changed {
			continue
		}
		if err := o.showRecord(o.only(collector.Record()), shown, out); err != nil {
			return false, err
		}
	}
	return false, nil
}

// ignoreExpired lets a watch that has grown too old be begun again.
func ignoreExpired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	return err
}

// showRecord prints the phases that were not printed yet; as JSON, the record on a line.
func (o *timelineOptions) showRecord(record *timelines.Record, shown map[event]bool, out io.Writer) error {
	if o.output.form == "json" {
		return json.NewEncoder(out).Encode(record)
	}
	for _, e := range events(record) {
		key := event{e.who, timelines.Phase{Name: e.Name, Start: e.Start}}
		key.Start.Time = key.Start.UTC()
		if shown[key] {
			continue
		}
		shown[key] = true
		line := fmt.Sprintf("%s  %s: %s", e.Start.UTC().Format(time.DateTime), printable(e.who), printable(e.Name))
		if message := printable(e.Message); message != "" {
			line += ": " + message
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}
