package origin

// serveTCP records the received bytes and returns each piece with the prefix "echo:".
func (c *connection) serveTCP() {
	record := &Record{Origin: c.origin, TCP: true}
	c.set.record(record)
	_ = c.echo(c, "", func(b []byte) { record.Body = append(record.Body, b...) }) // until the proxy closes
}
