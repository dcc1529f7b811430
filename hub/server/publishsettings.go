package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server/settings"
)

// publishSettings tells commands with what settings this hub works: a command that renders plans must render as the hub does.
func publishSettings(ctx context.Context, c client.Client, opts Options) error {
	raw, err := json.Marshal(opts.Settings)
	if err != nil {
		return fmt.Errorf("encoding the hub's settings: %w", err)
	}
	configMap := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: opts.Settings.SystemNamespace, Name: settings.ConfigMapName}
	err = c.Get(ctx, key, configMap)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	data := map[string]string{settings.DataKey: string(raw), settings.ReleaseDataKey: strconv.FormatBool(opts.ReleaseData != "")}
	switch {
	case apierrors.IsNotFound(err):
		err = c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: data})
	case maps.Equal(configMap.Data, data):
		return nil
	default:
		warnOfServerURL(opts.Logger, configMap.Data[settings.DataKey], opts.Settings.ServerURL)
		configMap.Data = data
		err = c.Update(ctx, configMap)
	}
	// Another hub that starts at the same time has the same settings.
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing ConfigMap %s: %w", key, err)
	}
	return nil
}

// warnOfServerURL logs that the server URL is another one than the hub had published. Machines have it in their connection info, and do not
// follow: without the message, all that an operator sees is that they are gone.
func warnOfServerURL(log *slog.Logger, published, url string) {
	var before settings.Settings
	if err := json.Unmarshal([]byte(published), &before); err != nil || before.ServerURL == "" || before.ServerURL == url {
		return
	}
	log.Warn("The server URL has changed. Machines and cluster-agents connect to the previous one until they are registered again: let it "+
		"lead to this hub, or set --server-url back", "previous", before.ServerURL, "serverURL", url)
}
