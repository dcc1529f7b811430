package remote

import (
	"bytes"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/drover-dev/drover/agent/config"
)

// watchFile ends the present connection when somebody replaces the connection info, so that a machine that joins anew need not wait for
// the next one. Where the machine has no more watches to give, the file is read with the next connection. The function that it returns ends
// it.
func (s *Source) watchFile() (end func()) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		// The folder, since the file is replaced by a rename.
		if err = watcher.Add(filepath.Dir(s.file)); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		s.log.Debug("Changes of the connection info are seen with the next connection only", "error", err)
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if filepath.Clean(event.Name) == filepath.Clean(s.file) && s.changed() {
					wake(s.replaced)
				}
			case _, open := <-watcher.Errors:
				if !open {
					return
				}
			}
		}
	}()
	return func() {
		_ = watcher.Close()
		<-done
	}
}

// changed tells whether the file holds another connection than the present one. One that cannot be read is half written, or will be
// complained about with the next connection.
func (s *Source) changed() bool {
	_, raw, err := config.ReadConnection(s.file)
	return err == nil && !bytes.Equal(raw, s.current().file)
}
