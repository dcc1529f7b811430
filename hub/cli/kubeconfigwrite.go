package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// write writes a kubeconfig to where the flags say, and tells which contexts a file has got.
func (o *kubeconfigOptions) write(config *clientcmdapi.Config, stdout, stderr io.Writer) error {
	if o.output == "" {
		raw, err := clientcmd.Write(*config)
		if err != nil {
			return fmt.Errorf("encoding the kubeconfig: %w", err)
		}
		_, err = stdout.Write(raw)
		return err
	}
	path := o.output
	// A link stays one: people keep such files elsewhere.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	var err error
	if o.merge {
		err = mergeInto(path, config)
	} else {
		err = writeConfig(path, config)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stderr, "%s has the contexts %s\n", o.output, printable(names(config)))
	return err
}

func writeConfig(path string, config *clientcmdapi.Config) error {
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return writePrivate(path, raw)
}

// mergeInto adds the entries of a kubeconfig to a file. Entries of the same names are replaced, all others and the current context stay.
// The lock is kubectl's own.
func mergeInto(path string, config *clientcmdapi.Config) (err error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL, 0)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("somebody else writes %s; where nobody does, remove %s.lock", path, path)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, lock.Close(), os.Remove(lock.Name())) }()
	into, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		into, err = clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	maps.Copy(into.Clusters, config.Clusters)
	maps.Copy(into.AuthInfos, config.AuthInfos)
	maps.Copy(into.Contexts, config.Contexts)
	if into.CurrentContext == "" {
		into.CurrentContext = config.CurrentContext
	}
	return writeConfig(path, into)
}
