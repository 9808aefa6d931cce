// Owner of the precompiled header: nothing links it.
int main() {}
