package cli

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server/settings"
)

// readSettings reads what the hub tells commands about itself, and whether it has release data beyond what it was built with.
func readSettings(ctx context.Context, c client.Reader, namespace string) (out settings.Settings, releaseData bool, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: settings.ConfigMapName}
	configMap := &corev1.ConfigMap{}
	err = c.Get(ctx, key, configMap)
	if apierrors.IsNotFound(err) {
		return out, false, fmt.Errorf("no hub of this version tells its settings in ConfigMap %s; "+
			"name another --system-namespace, or start the hub", key)
	}
	if err == nil {
		err = json.Unmarshal([]byte(configMap.Data[settings.DataKey]), &out)
	}
	if err != nil {
		return out, false, fmt.Errorf("reading the hub's settings from ConfigMap %s: %w", key, err)
	}
	return out, configMap.Data[settings.ReleaseDataKey] == "true", nil
}
