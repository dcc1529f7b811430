package host

import "io"

// AppendStream implements Host.
func (Machine) AppendStream(path string, content io.Reader) (int64, error) {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return 0, err
	}
	defer dir.close()
	file, _, err := dir.forAppending(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	written, err := io.Copy(file, content)
	if synced := file.Sync(); err == nil {
		err = synced
	}
	if synced := dir.sync(); err == nil {
		err = synced
	}
	return written, err
}
