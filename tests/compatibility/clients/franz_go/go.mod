module penstock/franz

go 1.23

require github.com/twmb/franz-go v1.22.2
